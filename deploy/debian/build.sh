#!/bin/sh
# Makes the Debian package: deploy/debian/build.sh WHEEL LOCK FOLDER, from the project's top folder. `make deb` calls it.
#
# What the lock names, by hash, and the streamer's own wheel go into an environment below FOLDER/source/root, which belongs to
# Debian's Python; then dpkg-buildpackage makes the package of it. It is for the platform and the Debian it is built on.
set -eu
wheel=$(realpath "$1")
lock=$(realpath "$2")
work=$(realpath -m "$3")
# That of the wheel. A tilde sorts before nothing: what is built before a release is older than it.
version=$(basename "$wheel" | cut -d- -f2 | sed 's/\.dev/~dev/')
python=/usr/bin/python3
here=deploy/debian
pip=${PIP:-pip}
PYTHON3_DEPENDS=$($python -c 'import sys; a, b = sys.version_info[:2]; print(f"python3 (>= {a}.{b}~), python3 (<< {a}.{b + 1})")')
SOURCE_DATE_EPOCH=$(stat --format %Y CHANGELOG.md)
export PYTHON3_DEPENDS SOURCE_DATE_EPOCH

rm -rf "$work"
source=$work/source
root=$source/root
lib=$root/usr/lib/ustreamer
mkdir -p "$source/debian" "$lib" "$root/usr/bin" "$root/etc/ustreamer"

# The environment. Only the interpreter and the program stay in bin; scripts of packages would be for the build's paths.
$python -m venv --without-pip "$lib"
install="$pip --python $lib/bin/python install --quiet --no-compile --disable-pip-version-check"
$install --require-hashes --only-binary :all: --requirement "$lock"
$install --no-index --no-deps "$wheel"
find "$lib/bin" -mindepth 1 ! -name 'python*' ! -name streamer -delete
sed -i '1s,^#!.*,#!/usr/lib/ustreamer/bin/python,' "$lib/bin/streamer"
rm -rf "$lib"/lib/python3.*/site-packages/spark_jobs # the nightly jobs run elsewhere
rm -rf "$lib/lib64" "$lib/include" "$lib"/lib/python3.*/site-packages/*.dist-info/direct_url.json
sed -i '/^command = /d' "$lib/pyvenv.cfg"
find "$lib" -name __pycache__ -prune -exec rm -r {} +
find "$lib/lib" -type f -perm /111 -exec chmod 0644 {} +
find "$lib/lib" -name '*.py' -exec sed -i '1{/^#!/d}' {} + # nothing there is a program
ln -s ../lib/ustreamer/bin/streamer "$root/usr/bin/streamer"

install --mode=0640 $here/streamer.yaml "$root/etc/ustreamer/streamer.yaml"
cp $here/control $here/rules $here/copyright $here/uprotocol-ustreamer.* "$source/debian/"
mkdir "$source/debian/source"
echo '3.0 (native)' >"$source/debian/source/format"

# The unit is that of deploy/systemd, with the package's paths and without its first lines about an installation by hand.
sed -e '1,/^\[Unit\]/{/^#   /d}' -e 's,/opt/ustreamer/bin/,/usr/bin/,' deploy/systemd/streamer.service \
    >"$source/debian/uprotocol-ustreamer.streamer.service"

program="$lib/bin/python -B"
$program $here/manpage.py >"$source/debian/streamer.1"
echo debian/streamer.1 >"$source/debian/uprotocol-ustreamer.manpages"
for shell in bash zsh fish; do
    ${COMPLETION:-streamer completion} $shell >"$work/completion.$shell"
done
install -D --mode=0644 "$work/completion.bash" "$root/usr/share/bash-completion/completions/streamer"
install -D --mode=0644 "$work/completion.zsh" "$root/usr/share/zsh/vendor-completions/_streamer"
install -D --mode=0644 "$work/completion.fish" "$root/usr/share/fish/vendor_completions.d/streamer.fish"
find "$lib" -name __pycache__ -prune -exec rm -r {} +

# Documents and examples, where the comments of configuration files say they are.
doc=$root/usr/share/doc/uprotocol-ustreamer
mkdir -p "$doc"
cp -R README.md docs config "$doc/"
rm -rf "$doc/docs/adr"
mkdir -p "$doc/deploy"
cp -R deploy/container "$doc/deploy/"
install -D -m 0644 deploy/systemd/pair.conf "$doc/deploy/systemd/pair.conf"
cp CHANGELOG.md "$source/CHANGELOG.md"

cat >"$source/debian/changelog" <<EOF
uprotocol-ustreamer ($version) unstable; urgency=medium

  * What has changed is in the changelog of the project, beside this file.

 -- uStreamer maintainers <ustreamer@users.noreply.github.com>  $(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
EOF
# Without build-essential, of which only the C compiler is needed, and only for the wheel.
(cd "$source" && dpkg-buildpackage --build=binary --unsigned-changes --no-pre-clean --no-check-builddeps >"$work/build.log" 2>&1) || {
    tail -40 "$work/build.log" >&2
    exit 1
}
echo "$work"/*.deb
