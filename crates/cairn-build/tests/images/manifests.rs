//! Manifests: what other tools write into lists arrives as those tools, or the kernel, have it.

use std::path::{Path, PathBuf};

use cairn::Format;
use cairn_build::build;
use cairn_testkit::judge::{self, KernelMount};
use cairn_testkit::place::Place;
use cairn_testkit::tree::{Snapshot, SnapshotOptions, digest_path};

use crate::support::{check, comparable, digest, options};

/// Runs a script in a directory.
fn sh(at: &Path, script: &str) {
    judge::run("sh", ["-ec", &format!("cd {}\n{script}", at.display())]);
}

/// A tree with owners, modes, times, devices, links and odd names in `tree`, and in `bare` only its
/// directories and the contents of its files, as an ordinary user would have them.
fn trees(at: &Path) {
    sh(
        at,
        r"mkdir -p tree/dev 'tree/a b/#c' tree/home/user
        cd tree
        echo program >bin; chmod 4755 bin; chown 0:7 bin
        echo x >home/user/x; chown -R 1000:70000 home/user; chmod 2750 home/user
        echo y >'a b/#c/back\slash'; printf z >'a b/caf\351='; printf z >'a b/*?['
        printf n >'a b/new
line'
        mknod dev/null c 1 3; mknod dev/big c 4095 70000; mknod dev/loop0 b 7 0; mkfifo dev/pipe
        chmod 660 dev/loop0; chown 0:6 dev/loop0
        ln -s '../a b' home/link; ln -s /none/such dev/fd
        touch -h -d '2001-02-03 04:05:06.000000007' bin home/link 'a b/#c'
        touch -d '1999-01-01 00:00:00.5' dev home/user/x
        touch -d '2003-01-01' . home home/user 'a b'
        mkdir ../bare
        find . -type d -exec mkdir -p ../bare/{} ';'
        find . -type f -exec cp --no-preserve=all {} ../bare/{} ';'
        chmod -R u=rwX,go= ../bare; chown -R 1234:1234 ../bare",
    );
}

/// What the kernel sees of an ext4 image with these manifests.
fn seen(place: &Place, sources: &[&str], manifests: &[&str], mount_point: &str) -> Snapshot {
    let image = place.path().join("image");
    let mut on_f2fs = None;
    for format in [Format::F2fs, Format::Ext4] {
        let mut options = options(format, &image, sources);
        options.rules.manifests = manifests.iter().map(|name| place.path().join(name)).collect();
        options.rules.mount_point = mount_point.into();
        build(options).unwrap_or_else(|error| panic!("{manifests:?}: {error}"));
        check(format, &image);
        // Digests of the host leave labels out.
        let own = comparable(digest(&image)).without_fact("security.selinux", |_, _| true);
        let Some(other) = on_f2fs.take() else {
            on_f2fs = Some(own);
            continue;
        };
        own.assert_same(&other);
        let kernel = KernelMount::new(&image, "ro");
        let seen = of_host(kernel.path());
        kernel.unmount();
        seen.assert_same(&own);
        return own;
    }
    unreachable!("both formats were built")
}

fn contents(place: &Place, name: &str) -> String {
    format!("{}/", place.path().join(name).display())
}

fn of_host(path: &Path) -> Snapshot {
    comparable(digest_path(path, SnapshotOptions::default()).unwrap())
}

/// The error of a build with a manifest of this text.
fn refused(place: &Place, text: &[u8]) -> String {
    let list = place.path().join("list");
    std::fs::write(&list, text).unwrap();
    let image = place.path().join("refused");
    let mut options = options(Format::Ext4, &image, &[&contents(place, "bare")]);
    options.rules.manifests = vec![list];
    let said = build(options).expect_err("it must be refused").to_string();
    assert!(!image.exists() && said.contains("/list: "), "{said}");
    said
}

#[test]
fn an_mtree_gives_a_bare_copy_what_the_tree_has() {
    let place = Place::new();
    trees(place.path());
    sh(
        place.path(),
        "bsdtar -cf a.mtree --format=mtree -C tree .
        bsdtar -cf b.mtree --format=mtree --options=all,use-set -C tree .
        bsdtar -cf c.mtree --format=mtree-classic \
--options='!all,type,mode,uid,gid,time,link,device' -C tree .",
    );
    let expected = of_host(&place.path().join("tree"));
    for list in ["a.mtree", "b.mtree", "c.mtree"] {
        println!("{list}");
        seen(&place, &[&contents(&place, "bare")], &[list], "").assert_same(&expected);
    }
}

#[test]
fn an_mtree_that_does_not_fit_the_sources() {
    let place = Place::new();
    trees(place.path());
    for (text, why) in [
        (&b"#mtree\n./bin type=dir mode=755\n"[..], "line 2: /bin: is a regular file"),
        (b"#mtree\n./none type=file mode=755\n", "line 2: /none: no source has such a file"),
        (b"#mtree\n\n./none colour=red\n", "line 3: the keyword 'colour'"),
        (b"#mtree\n./bin/x type=dir\n", "line 2: /bin/x: its directory 'bin' is not a directory"),
        (b"#mtree\n./bin type=file uname=nobody\n", "'nobody' is not in etc/passwd"),
    ] {
        let said = refused(&place, text);
        assert!(said.contains(why), "{said}");
    }
    std::fs::write(place.path().join("list"), "#mtree\n./none type=file optional\n").unwrap();
    seen(&place, &[&contents(&place, "bare")], &["list"], "");
}

/// The dump says everything, also the contents of small files.
#[test]
fn a_dump_of_composefs_is_a_tree() {
    let place = Place::new();
    trees(place.path());
    std::fs::write(
        place.path().join("list"),
        r"/ 4096 40755 4 0 0 0 1041379200.0 - - -
/dev 4096 40755 2 0 0 0 1041379200.0 - - -
/dev/null 0 20666 1 0 0 259 1041379200.0 - - -
/bin 8 104755 2 0 7 0 981173106.7 - program\n - user.a=\x00b security.capability=\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00
/sbin 8 @104755 2 0 7 0 981173106.7 /bin - -
/a\x20b 4096 40700 2 5 6 0 1041379200.0 - - - trusted.x=y
/link 0 120777 1 0 0 0 1041379200.0 a\x20b - -
/empty 0 100600 1 1 2 0 1041379200.0 - - -
",
    )
    .unwrap();
    sh(
        place.path(),
        r"mkdir expected; cd expected; mkdir -m 755 dev; mkdir -m 700 'a b'; chown 5:6 'a b'
        mknod dev/null c 1 3; chmod 666 dev/null; echo program >bin; chown 0:7 bin; chmod 4755 bin
        setfattr -n user.a -v 0x0062 bin
        setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 bin
        setfattr -n trusted.x -v y 'a b'; chmod 4755 bin
        ln bin sbin; ln -s 'a b' link; : >empty; chmod 600 empty; chown 1:2 empty
        touch -d '2001-02-03 04:05:06.000000007Z' bin
        touch -h -d '2003-01-01 00:00:00Z' dev/null dev 'a b' link empty .",
    );
    let expected = of_host(&place.path().join("expected"));
    seen(&place, &[], &["list"], "").assert_same(&expected);
    let said =
        refused(&place, b"/ 4096 40755 4 0 0 0 1.0 - - -\n/x 9 100644 1 0 0 0 1.0 ab/cd - -\n");
    assert!(said.contains("line 2: /x: no source has such a file"), "{said}");
}

/// The table of Android, whose names begin with the mount point.
#[test]
fn fs_config_and_file_contexts_hold_for_every_file() {
    let place = Place::new();
    sh(
        place.path(),
        "mkdir -p bare/bin bare/etc; echo p >bare/bin/ping; echo h >bare/etc/hosts
        ln -s ping bare/bin/link; touch -h -d '2003-01-01' bare bare/bin bare/etc bare/*/*
        cp -a bare expected; cd expected
        chown -h 0:2000 bin bin/ping bin/link
        chmod 751 bin; chmod 750 bin/ping; chmod 644 etc/hosts
        chown 0:0 . etc etc/hosts; chmod 755 . etc
        setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 bin/ping",
    );
    let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    write(
        "config",
        "vendor 0 0 755\nvendor/bin 0 2000 0751\nvendor/bin/link 0 2000 777\n\
        vendor/bin/ping 0 2000 0750 capabilities=0x2000\nvendor/etc 0 0 755\n\
        vendor/etc/hosts 0 0 0644\nvendor/gone 0 0 644\n",
    );
    write(
        "contexts",
        "# contexts\n/(vendor|system/vendor)/bin/ping -- u:object_r:ping_exec:s0\n\
        /vendor(/.*)? u:object_r:vendor_file:s0\n/vendor/bin(/.*)?  u:object_r:vendor_bin:s0\n\
        /vendor/bin/ping u:object_r:ping_exec:s0\n/vendor/etc(/.*)?  u:object_r:etc:s0\n",
    );
    let expected = of_host(&place.path().join("expected"));
    let source = contents(&place, "bare");
    seen(&place, &[&source], &["config", "contexts"], "vendor").assert_same(&expected);
    let kernel = KernelMount::new(&place.path().join("image"), "ro");
    for (path, label) in [
        ("", "vendor_file"),
        ("bin", "vendor_bin"),
        ("bin/ping", "ping_exec"),
        ("bin/link", "vendor_bin"),
        ("etc", "etc"),
        ("etc/hosts", "etc"),
    ] {
        let at = kernel.path().join(path);
        let at = at.to_str().unwrap();
        let words = ["-h", "--absolute-names", "--only-values", "-n", "security.selinux", at];
        let seen = judge::run("getfattr", words);
        assert_eq!(seen, format!("u:object_r:{label}:s0\0"), "{path}");
    }
    kernel.unmount();
    let said = refused(&place, b"bin 0 0 755\n");
    assert!(said.contains("no line is for /") && said.contains("mount point"), "{said}");
    let said = refused(&place, b"/bin(/.*)? u:object_r:x:s0\n");
    assert!(said.contains("no line is for /: add one such as"), "{said}");
}

#[test]
fn the_state_of_fakeroot_says_what_its_programs_were_told() {
    let place = Place::new();
    // The programs run as a user, so that nothing of it is so on the host.
    sh(
        place.path(),
        "mkdir fake; chmod 777 .; chown nobody fake
        setpriv --reuid 65534 --regid 65534 --clear-groups fakeroot -s fake/state sh -ec '
            cd fake; mkdir -p rootfs/dev; echo p >rootfs/su; chmod 4755 rootfs/su
            mknod rootfs/dev/null c 1 3; mknod rootfs/dev/sda1 b 8 1; mkfifo rootfs/dev/pipe
            echo u >rootfs/user; chown 1000:1001 rootfs/user; ln rootfs/user rootfs/again
            ln -s user rootfs/link; chown -h 7:8 rootfs/link
            touch -h -d 2003-01-01 rootfs/dev/* rootfs/dev rootfs/* rootfs
            tar --numeric-owner --format=pax -cf tree.tar -C rootfs .'
        mkdir unpacked; tar --numeric-owner -xpf fake/tree.tar -C unpacked",
    );
    let expected = of_host(&place.path().join("unpacked"));
    let source = contents(&place, "fake/rootfs");
    seen(&place, &[&source], &["fake/state"], "").assert_same(&expected);
}

fn untimed(snapshot: Snapshot) -> Snapshot {
    snapshot.without_fact("mtime", |_, _| true)
}

/// genext2fs is the judge of what its table means.
#[test]
fn a_device_table_means_what_genext2fs_makes_of_it() {
    let place = Place::new();
    trees(place.path());
    std::fs::write(
        place.path().join("list"),
        "# name type mode uid gid major minor start inc count\n\
        /dev d 750 3 4 - - - - -\n/new d 755 0 0 - - - - -\n/bin f 4711 5 6 - - - - -\n\
        /dev/null c 666 0 0 1 3 0 0 -\n/dev/sda b 640 0 6 3 1 - - -\n/dev/tty c 666 0 5 4 0 0 1 3\n\
        /dev/pipe p 600 1 2 - - - - -\n/dev/log s 666 0 0 - - - - -\n",
    )
    .unwrap();
    // genext2fs makes the root anew.
    sh(place.path(), "chmod 755 bare; chown 0:0 bare");
    let (image, bare) = (place.path().join("ext2"), place.path().join("bare"));
    let table = place.path().join("list");
    let words: [&Path; 8] = [
        "-d".as_ref(),
        &bare,
        "-D".as_ref(),
        &table,
        "-b".as_ref(),
        "2048".as_ref(),
        "-f".as_ref(),
        &image,
    ];
    judge::run("genext2fs", words);
    let kernel = KernelMount::new(&image, "ro");
    let expected = of_host(kernel.path());
    kernel.unmount();
    let seen = seen(&place, &[&contents(&place, "bare")], &["list"], "");
    untimed(seen).assert_same(&untimed(expected));
}

/// What buildroot has beside it.
#[test]
fn a_table_of_buildroot_changes_whole_directories_and_capabilities() {
    let place = Place::new();
    sh(
        place.path(),
        "mkdir -p bare/etc bare/srv/www; echo x >bare/srv/www/x; ln -s x bare/srv/www/link
        echo p >bare/ping; echo 'www:x:33:34::/:' >bare/etc/passwd; echo 'www:x:34:' >bare/etc/group
        touch -h -d '2003-01-01' bare bare/* bare/*/* bare/*/*/*
        cp -a bare expected; cd expected; chown -hR 33:34 srv; chmod 755 ping
        setfattr -n security.capability -v 0x0100000200300000000000000000000000000000 ping",
    );
    let table = "/srv r -1 www www - - - - -\n/none F 644 0 0 - - - - -\n\
        /ping f 755 root root - - - - -\n\
        |xattr cap_net_raw+ep\n|xattr cap_net_admin+ep\n";
    std::fs::write(place.path().join("list"), table).unwrap();
    let expected = of_host(&place.path().join("expected"));
    let source = contents(&place, "bare");
    seen(&place, &[&source], &["list"], "").assert_same(&expected);
    for (text, why) in [
        ("/none f 644 0 0 - - - - -\n", "line 1: /none: no source has such a file"),
        ("/none r 644 0 0 - - - - -\n", "line 1: /none: no source has such a file"),
        ("/ping d 755 0 0 - - - - -\n", "line 1: /ping: is a regular file"),
        ("/ping f 755 nobody 0 - - - - -\n", "'nobody' is not in etc/passwd"),
    ] {
        let said = refused(&place, text.as_bytes());
        assert!(said.contains(why), "{said}");
    }
}

/// mksquashfs is the judge of its pseudo-files.
#[test]
fn pseudo_files_mean_what_mksquashfs_makes_of_them() {
    let place = Place::new();
    trees(place.path());
    std::fs::write(
        place.path().join("list"),
        "# pseudo\ndev d 700 9 9\nnew d 755 0 0\n/new/null c 666 0 0 1 3\nnew/sda b 660 0 6 8 0\n\
        bin m 4711 5 root\nnew/link s 777 0 0 to a place\nnew/old D 981173106 750 3 4\n\
        new/fifo i 600 1 2 f\nnew/socket i 640 1 2 s\n\"a b/#c\" m 711 1 1\nnone m 755 0 0\n\
        new/spaced\\ name d 755 0 0\n",
    )
    .unwrap();
    let (image, out) = (place.path().join("squashfs"), place.path().join("out"));
    let path = |name: &str| -> PathBuf { place.path().join(name) };
    let words = [path("bare"), image.clone(), "-pf".into(), path("list"), "-quiet".into()];
    judge::run("mksquashfs", words);
    judge::run("unsquashfs", [Path::new("-q"), "-n".as_ref(), "-d".as_ref(), &out, &image]);
    let expected = of_host(&out);
    let seen = seen(&place, &[&contents(&place, "bare")], &["list"], "");
    let old = |snapshot: &Snapshot| snapshot.get(b"new/old").unwrap().to_owned();
    assert_eq!(old(&seen), old(&expected));
    untimed(seen).assert_same(&untimed(expected));
}
