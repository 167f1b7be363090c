//! Package managers on an image.

use cairn_testkit::judge;

use super::{FORMATS, Root, lines};

/// Copies programs with their libraries into a tree, and makes a package with an owner.
const DPKG: &str = r#"
cd "$1"; mkdir -p tree/var/lib/dpkg/info tree/var/lib/dpkg/updates tree/var/log tree/tmp
mkdir -p tree/usr/bin tree/usr/sbin tree/usr/lib tree/etc
ln -s usr/bin tree/bin; ln -s usr/sbin tree/sbin; ln -s usr/lib tree/lib
ln -s usr/lib64 tree/lib64; mkdir tree/usr/lib64
for name in dpkg dpkg-deb dpkg-split dpkg-query tar rm sh diff chown; do
    program=$(command -v $name); cp -L "$program" tree/usr/bin/$name
    for library in $(ldd "$program" | grep -o '/[^ ]*'); do
        mkdir -p "tree$(dirname "$library")"; cp -nL "$library" "tree$library"
    done
done
# dpkg looks for these, but a package without services does not need them.
for name in ldconfig start-stop-daemon; do
    printf '#!/bin/sh\n' >tree/usr/sbin/$name; chmod 755 tree/usr/sbin/$name
done
touch tree/var/lib/dpkg/status tree/var/lib/dpkg/available
echo 'root:x:0:0:root:/root:/bin/sh' >tree/etc/passwd; echo 'root:x:0:' >tree/etc/group
mkdir -p package/DEBIAN package/usr/share/given
printf 'Package: given\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b.c>\nDescription: given\n' \
    >package/DEBIAN/control
printf '#!/bin/sh\nset -e\nchown 33:34 /usr/share/given/file\necho configured\n' \
    >package/DEBIAN/postinst
chmod 755 package/DEBIAN/postinst
echo contents >package/usr/share/given/file; ln package/usr/share/given/file package/usr/share/given/link
dpkg-deb --build package given.deb >/dev/null
"#;

#[test]
fn dpkg_installs_and_removes_a_package() {
    for format in FORMATS {
        let root = Root::empty(format);
        let place = root.place.path().to_str().unwrap();
        judge::run("sh", ["-ec", DPKG, "sh", place]);
        root.build();
        let said = root.script(
            r#"
            ids 100000:65536
            install() { run --bind "$PWD/given.deb:/given.deb" image -- dpkg -i /given.deb; }
            install >device/out || { cat device/out device/said; }
            tail -n 1 device/out
            ./cairn stat -c '%u:%g %h %s' image /usr/share/given/file
            run image -- dpkg -r given >device/out || { cat device/out device/said; }
            ./cairn find image / -name given
            grep -c given.deb device/said || true"#,
        );
        assert_eq!(lines(&said), "configured\n33:34 2 9\n0", "{format}");
        root.assert_clean();
    }
}

/// Ten packages of Debian's mirrors on a fresh root, and away again.
#[test]
fn apt_installs_ten_packages_with_their_owners() {
    if std::env::var_os("CAIRN_DEEP").is_none() {
        println!("not run: it needs the network and minutes: CAIRN_DEEP=1");
        return;
    }
    for format in FORMATS {
        let root = Root::empty(format);
        let at = |name: &str| root.path(name).to_str().unwrap().to_owned();
        judge::run("mmdebstrap", ["--quiet", "--variant=apt", "stable", &at("root.tar")]);
        let (format, image, archive) = (format.to_string(), at("image"), at("root.tar"));
        let words = ["build", "-F", "-t", &format, "--free", "500M", &image, &archive];
        judge::run(crate::fixture::CAIRN, words);
        std::os::unix::fs::chown(root.image(), Some(super::USER), Some(super::USER)).unwrap();
        let said = root.script(
            r#"
            ids 100000:65536
            packages="nginx-light man-db cron less vim-tiny sqlite3 rsync openssh-client busybox file"
            run image -- sh -ec '
                apt-get -qq update; export DEBIAN_FRONTEND=noninteractive
                apt-get -qq -y --no-install-recommends install '"$packages"' >/tmp/log 2>&1 ||
                    { cat /tmp/log; exit 1; }
                dpkg --audit; stat -c %U:%G /var/cache/man /usr/bin/crontab
                apt-get -qq -y purge '"$packages"' >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
                dpkg --audit; echo done'
            "#,
        );
        assert_eq!(lines(&said), "man:man\nroot:crontab\ndone", "{format}");
        root.assert_clean();
    }
}
