# To be sourced behind `set`: where an argument is -h or --help, prints the comment that the script begins with, and ends.
for argument in "$@"; do
  case $argument in
    -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
  esac
done
