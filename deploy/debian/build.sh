#!/bin/sh
# Builds zmqtriton_VERSION_ARCHITECTURE.deb: build.sh [REQUIREMENT [DIRECTORY]]
# REQUIREMENT is what pip understands: a name, or the path of a wheel or a checkout.
# PYTHON, DEBFULLNAME, DEBEMAIL and REVISION may be set in the environment.
set -eu
umask 022

requirement=${1:-zmqtriton}
directory=${2:-.}
here=$(dirname "$(readlink -f "$0")")
# Not a link such as python3, which an upgrade of the distribution would turn to another one.
python=$(readlink -f "${PYTHON:-/usr/bin/python3}")
python_package=$(dpkg-query --search "$python" | cut -d: -f1 | sed 's/-minimal$//')
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
home=/opt/zmqtriton
venv=$stage$home

# The environment, whose programs name the place where it will be.
"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --no-compile "$requirement"
grep -rlIF "$venv" "$venv/bin" "$venv/pyvenv.cfg" | xargs sed -i "s#$venv#$home#g"
find "$venv/lib" -name direct_url.json -delete
sed -i '/direct_url.json,/d' "$venv"/lib/python3*/site-packages/zmqtriton-*.dist-info/RECORD
# The server's user may not write there, and would compile everything at each start. By content,
# since dates change on the way.
"$venv/bin/python" -m compileall -q --invalidation-mode checked-hash -s "$stage" -p / "$venv/lib"

run() { "$venv/bin/python" -m "$@"; }
# Pip's version, in which the commit's time grows. To Debian 1.0~rc1 is before 1.0, and 1.0rc1 behind it.
version=$(run pip show zmqtriton | sed -n 's/^Version: //p' | sed 's/^\([0-9.]*\)\(a\|b\|rc\)/\1~\2/')-${REVISION:-1}
architecture=$(dpkg --print-architecture)

# What `zmqtriton deploy systemd` writes, where a package has it.
run zmqtriton deploy systemd "$stage/systemd" >/dev/null
for unit in "$stage"/systemd/*.service "$stage"/systemd/*.socket; do
    install -D -m 644 "$unit" "$stage/usr/lib/systemd/system/$(basename "$unit")"
done
install -D -m 644 "$stage/systemd/sysusers.d.conf" "$stage/usr/lib/sysusers.d/zmqtriton.conf"
install -D -m 644 "$stage/systemd/tmpfiles.d.conf" "$stage/usr/lib/tmpfiles.d/zmqtriton.conf"
install -D -m 640 "$stage/systemd/environment" "$stage/etc/zmqtriton/environment"
install -D -m 644 "$stage/systemd/logrotate.conf" "$stage/etc/logrotate.d/zmqtriton"
rm -r "$stage/systemd"

# Commands, completion, manual, documentation. tritonserver stays NVIDIA's name outside of /opt.
mkdir -p "$stage/usr/bin" "$stage/usr/share/man/man1" "$stage/usr/share/doc"
for name in zmqtriton zmqtriton-ctl; do
    ln -s "$home/bin/$name" "$stage/usr/bin/$name"
    gzip -9nc "$venv/share/man/man1/$name.1" >"$stage/usr/share/man/man1/$name.1.gz"
done
complete() {
    mkdir -p "$(dirname "$stage/usr/share/$2")"
    run zmqtriton.ctl.main completion "$1" >"$stage/usr/share/$2"
}
complete bash bash-completion/completions/zmqtriton-ctl
complete zsh zsh/vendor-completions/_zmqtriton-ctl
complete fish fish/vendor_completions.d/zmqtriton-ctl.fish
mv "$venv/share/doc/zmqtriton" "$stage/usr/share/doc/zmqtriton"
rm -r "$venv/share"
cat >"$stage/usr/share/doc/zmqtriton/copyright" <<END
Copyright: the zmqtriton developers
License: Apache-2.0, see /usr/share/common-licenses/Apache-2.0

Libraries below $home/lib have their licences in their dist-info.
END

mkdir "$stage/DEBIAN"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$stage/DEBIAN"
(cd "$stage" && find etc -type f | sort | sed 's#^#/#') >"$stage/DEBIAN/conffiles"
(cd "$stage" && find opt usr -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/DEBIAN/md5sums"
cat >"$stage/DEBIAN/control" <<END
Package: zmqtriton
Version: $version
Architecture: $architecture
Maintainer: ${DEBFULLNAME:-zmqtriton developers} <${DEBEMAIL:-zmqtriton@localhost.localdomain}>
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f1)
Depends: $python_package, libc6, libgcc-s1, libstdc++6, systemd, zlib1g
Recommends: logrotate
Section: net
Priority: optional
Description: server for Python models, compatible with NVIDIA Triton
 Serves repositories of models written for Triton's Python backend over HTTP
 and gRPC, with a process for each instance of a model. The server and its
 libraries are in $home.
END
mkdir -p "$directory"
dpkg-deb --root-owner-group -Zxz --build "$stage" "$directory/zmqtriton_${version}_$architecture.deb"
