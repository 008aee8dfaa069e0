# To be sourced: packages of other suites of Debian than the system's, unpacked into a folder beside it.

# with_apt HOME SUITES COMMAND...: runs COMMAND with an apt of its own over these suites of the machine's mirror of Debian. It
# knows what the system has where HOME/status says so. On failure `why` says why.
with_apt() {
  local home=$1 suites=$2 keyring=/usr/share/keyrings/debian-archive-keyring.gpg mirror suite
  shift 2
  [ -e $keyring ] || { why="debian-archive-keyring is not installed"; return 1; }
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | grep -m1 '/debian/\?$') ||
    { why="apt knows no mirror of Debian (apt-get update)"; return 1; }
  mkdir -p "$home/lists/partial" "$home/cache/archives/partial"
  for suite in $suites; do printf 'deb [signed-by=%s] %s %s main\n' $keyring "$mirror" "$suite"; done >"$home/sources"
  cat >"$home/apt.conf" <<END
Dir::State "$home"; Dir::State::status "$home/status"; Dir::Cache "$home/cache";
Dir::Etc::sourcelist "$home/sources"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
APT::Install-Recommends "0"; APT::Sandbox::User "root";
END
  (export APT_CONFIG=$home/apt.conf && apt-get update -q && "$@") >"$home/packages.log" 2>&1 ||
    { why="packages of $suites cannot be downloaded ($home/packages.log)"; return 1; }
}
# Unpacks what was downloaded and ends the fetching of HOME.
unpack() {
  local package
  for package in "$1"/cache/archives/*.deb; do dpkg -x "$package" "$1/root" || return 1; done
  rm -r "$1/cache" "$1/lists" && touch "$1/done"
}
download() { (cd "$1/cache/archives" && shift && apt-get download -q "$@"); }
