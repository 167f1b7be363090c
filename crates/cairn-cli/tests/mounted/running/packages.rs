//! Package managers on an image.

use cairn_testkit::judge;

use super::{FORMATS, Root, lines};

/// Copies programs with their libraries into a tree, and makes a package with an owner.
const DPKG: &str = r#"
cd "$1"; mkdir -p tree/var/lib/dpkg/info tree/var/lib/dpkg/updates tree/var/log tree/tmp
mkdir -p tree/usr/bin tree/usr/sbin tree/usr/lib tree/etc
ln -s usr/bin tree/bin; ln -s usr/sbin tree/sbin; ln -s usr/lib tree/lib
ln -s usr/lib64 tree/lib64; mkdir tree/usr/lib64
with_libraries() {
    mkdir -p "tree$(dirname "$2")"; cp -L "$1" "tree$2"
    for library in $(ldd "$1" | grep -o '/[^ ]*'); do
        mkdir -p "tree$(dirname "$library")"; cp -nL "$library" "tree$library"
    done
}
for name in dpkg dpkg-deb dpkg-split dpkg-query tar rm sh diff chown; do
    with_libraries "$(command -v $name)" /usr/bin/$name
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

/// After [`DPKG`]: apt, and a repository of ten packages, each of which needs the one before.
const APT: &str = r#"
with_libraries "$(command -v apt-get)" /usr/bin/apt-get
for method in copy file store; do
    with_libraries /usr/lib/apt/methods/$method /usr/lib/apt/methods/$method
done
mkdir -p tree/etc/apt/apt.conf.d tree/etc/apt/preferences.d tree/var/lib/apt/lists/partial
mkdir -p tree/var/cache/apt/archives/partial tree/var/log/apt tree/usr/share/dpkg repository
cp /usr/share/dpkg/*table tree/usr/share/dpkg
cat >tree/etc/apt/apt.conf <<END
APT::Architecture "$(dpkg --print-architecture)"; APT::Sandbox::User "root";
END
echo 'deb [trusted=yes] file:/repository ./' >tree/etc/apt/sources.list
for number in 1 2 3 4 5 6 7 8 9 10; do
    mkdir -p p/DEBIAN p/usr/share/given$number
    echo "contents of $number" >p/usr/share/given$number/file
    printf '%s\n' "Package: given$number" 'Version: 1' 'Architecture: all' \
        'Maintainer: A <a@b.c>' 'Description: given' >p/DEBIAN/control
    [ $number = 1 ] || echo "Depends: given$((number - 1))" >>p/DEBIAN/control
    printf '#!/bin/sh\nset -e\nchown %s:%s /usr/share/given%s/file\n' \
        $number $((number + 100)) $number >p/DEBIAN/postinst
    chmod 755 p/DEBIAN/postinst
    archive=repository/given$number.deb
    dpkg-deb --build p $archive >/dev/null
    { cat p/DEBIAN/control; echo "Filename: ./given$number.deb"
      echo "Size: $(stat -c %s $archive)"
      echo "SHA256: $(sha256sum $archive | cut -d' ' -f1)"; echo; } >>repository/Packages
    rm -r p
done
"#;

/// An ordinary user's apt, with a repository on the host and without the network.
#[test]
fn apt_installs_and_removes_ten_packages_of_a_local_repository() {
    for format in &FORMATS[..if cairn_testkit::deep() { 2 } else { 1 }] {
        let format = *format;
        let root = Root::empty(format);
        let place = root.place.path().to_str().unwrap();
        judge::run("sh", ["-ec", &format!("{DPKG}{APT}"), "sh", place]);
        root.build();
        let said = root.script(
            r#"
            ids 100000:65536
            apt() { run --bind "$PWD/repository:/repository" image -- sh -ec "$1"; }
            apt 'apt-get -qq update; export DEBIAN_FRONTEND=noninteractive
                apt-get -qq -y install given10; dpkg --audit' >device/out ||
                { cat device/out device/said; }
            grep -c '^Setting up given' device/out
            ./cairn stat -c '%u:%g %s' image /usr/share/given1/file /usr/share/given10/file
            apt 'apt-get -qq -y purge given1; dpkg --audit' >device/out ||
                { cat device/out device/said; }
            grep -c '^Removing given' device/out
            ./cairn find image / -name 'given*[0-9]'"#,
        );
        assert_eq!(lines(&said), "10\n1:101 14\n10:110 15\n10", "{format}");
        root.assert_clean();
    }
}

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
