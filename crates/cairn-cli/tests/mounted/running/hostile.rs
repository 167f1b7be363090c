//! Images and commands that want more than they are given.

use super::{FORMATS, Root, lines};

/// `/proc/self/fd` of the process that makes mounts has files of the host, which are not read-only
/// yet.
#[test]
fn links_of_an_image_lead_nowhere_else() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        mkdir shown; echo host >shown/file; chown nobody shown
        for number in $(seq 3 24); do
            for name in etc mnt dev; do
                ./cairn rm -r -f image /$name; ./cairn ln -s image /proc/self/fd/$number /$name
            done
            run --bind shown:/mnt:ro --bind shown:/data:ro image -- sh -c : || :
            run --bind shown:/mnt --bind shown/file:/mnt/a/b image -- sh -c : || :
        done
        # Out of the root directory, and in circles.
        for target in ../../../../../../../../shown loop; do
            for name in etc mnt loop; do
                ./cairn rm -r -f image /$name; ./cairn ln -s image "$target" /$name
            done
            run --bind shown:/data:ro image -- sh -c : || :
        done
        ls -l shown | wc -l; ls shown
        run --bind shown:/loop/b image -- sh -c : || { echo "$?"; tail -n 1 device/said; }"#,
    );
    let image = root.image();
    let expected = format!(
        "2\nfile\n1\ncairn: {}: /loop/b: nothing can be shown there: too many levels of symbolic \
         links: give another path of the image",
        image.display()
    );
    assert_eq!(lines(&said), expected);
    root.assert_clean();
}

/// As systemd-resolved leaves it: on the image nothing is in /run.
#[test]
fn resolvers_are_found_behind_a_link_to_nothing() {
    for format in FORMATS {
        let root = Root::new(format);
        let said = root.script(
            r#"
            echo nameserver 192.0.2.7 >device/resolvers
            mount --bind device/resolvers "$(readlink -f /etc/resolv.conf)"
            for target in ../run/systemd/resolve/stub-resolv.conf /etc/link; do
                ./cairn rm -f image /etc/resolv.conf
                ./cairn ln -s image $target /etc/resolv.conf
                ./cairn ln -s -f image ../deep/er/than/.././that /etc/link
                run image -- sh -c '
                    cat /etc/resolv.conf; echo x 2>&- >/etc/resolv.conf || echo refused'
            done
            ./cairn ls image / | grep -v lost+found; ./cairn ls image /etc"#,
        );
        // `..` of what is missing leads nowhere, as elsewhere.
        let resolvers = "nameserver 192.0.2.7\nrefused";
        let after = "bin\netc\nhome\nhosts\nlink\nresolv.conf";
        let seen = lines(&said);
        assert!(seen.starts_with(resolvers) && seen.ends_with(after), "{format}: {seen}");
        root.assert_clean();
    }
}

#[test]
fn descriptors_of_the_caller_are_closed_unless_asked_for() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        echo host >file
        run image -- sh -c 'echo /proc/self/fd/*' 3<file 7<file 200<file
        run --preserve-fds 2 image -- sh -c 'cat <&4; echo more >&3; echo /proc/self/fd/*' \
            3>more 4<file 9<file
        cat more; chmod 600 file
        run --preserve-fds 2 image -- sh -c 'echo no' 3<file || { echo "$?"; cat device/said; }"#,
    );
    let expected = "
        /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3
        host
        /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3 /proc/self/fd/4 \
                    /proc/self/fd/5
        more
        2
        cairn: --preserve-fds 2: not all descriptors from 3 to 4 are open: open them, as in \
                    3<FILE, or give fewer";
    assert_eq!(lines(&said), lines(expected));
    root.assert_clean();
}

/// Text that a program puts into the terminal would be read by the caller's shell. The keyrings of
/// the session are the caller's.
#[test]
fn a_command_cannot_type_or_use_keys() {
    let root = Root::empty(FORMATS[0]);
    let keyctl = if cfg!(target_arch = "x86_64") { 250 } else { 219 };
    let said = root.script(&format!("keyctl={keyctl}\n{KEYS_AND_TYPING}"));
    let refused = "refused: Operation not permitted";
    assert_eq!(lines(&said), format!("{refused}\n{refused}\ndone\n{refused}"));
    root.assert_clean();
}

const KEYS_AND_TYPING: &str = r#"
        mkdir -p tree/etc; program=$(command -v perl); cp -L "$program" tree/perl
        for library in $(ldd "$program" | grep -o '/[^ ]*'); do
            mkdir -p "tree$(dirname "$library")"; cp -nL "$library" "tree$library"
        done
        ./cairn build -t ext4 --free 16M image tree/; chown nobody image
        # TIOCSTI, TIOCLINUX, and one that is harmless: TIOCGWINSZ.
        echo 'for (0x5412, 0x541c, 0x5413) { my $text = "x" x 64;
            print ioctl(STDIN, $_, $text) ? "done" : "refused: $!", "\n" }
            # The serial number of the keyring of the session.
            print syscall($ARGV[0], 0, -3, 0) == -1 ? "refused: $!" : "done", "\n"' >tree/program
        ./cairn put image tree/program /program
        as_user env LC_ALL=C script -qec "./cairn run image -- /perl /program $keyctl" /dev/null \
            </dev/null | tr -d '\r' | grep -v '^cairn: note: there is one user'"#;

/// Process 1 makes the mounts. With its rights, what is read-only could be made writable.
#[test]
fn a_command_cannot_act_as_process_1() {
    for format in FORMATS {
        let root = Root::new(format);
        let said = root.script(
            r#"
            mkdir shown; echo host >shown/file; chown -R nobody shown
            run --bind shown:/data:ro image -- sh -c '
                of() { while read name value; do [ "$name" = "$1:" ] && echo $value; done <$2; }
                # Process 1 may be about to give up its rights.
                for try in 1 2 3 4 5 6 7 8 9; do
                    theirs=$(of CapPrm /proc/1/status); ours=$(of CapPrm /proc/self/status)
                    more=$((0x$theirs & ~0x$ours)); [ $more = 0 ] && break; sleep 0.5
                done
                echo "$more more"
                for name in exe mem environ auxv maps; do
                    (: </proc/1/$name) 2>/dev/null && echo "$name is read"
                done
                for name in exe root/ cwd/ fd/0 ns/mnt; do
                    [ -e /proc/1/$name ] && echo "$name is reached"
                done
                (: <>/proc/1/mem) 2>/dev/null && echo "its memory is written"
                mount -o remount,rw,bind /data 2>/dev/null && echo "the mount is changed"
                (echo x >>/data/file) 2>/dev/null && echo "the file is written"
                cat /data/file'
            cat shown/file"#,
        );
        assert_eq!(lines(&said), "0 more\nhost\nhost", "{format}");
        root.assert_clean();
    }
}

/// A path of the image that is `/proc/self/exe` makes the command of whatever file the process has
/// before. With the libraries of the host's `cairn`, that program runs, and is looked at.
#[test]
fn the_program_of_the_host_is_out_of_reach() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        chmod 700 cairn; chown nobody cairn
        cp -a tree linked; ln -s /proc/self/exe linked/bin/me
        for library in $(ldd cairn | grep -o '/[^ ]*'); do
            mkdir -p "linked$(dirname "$library")"; cp -L "$library" "linked$library"
        done
        rm image; ./cairn build --free 24M image linked/ >/dev/null; chown nobody image
        # It waits for an archive on a pipe.
        mkfifo pipe; exec 9<>pipe
        run image -- /bin/me build /new-$$ - <pipe >/dev/null 2>&1 &
        process=
        while [ -z "$process" ]; do
            for one in /proc/[0-9]*; do
                words=$(tr '\0' ' ' 2>/dev/null <"$one/cmdline") || continue
                case $words in "/bin/me build /new-$$ "*) process=$one ;; esac
            done
        done
        readlink "$process/exe"; kill -9 "${process#/proc/}"
        wait; stat -c %a cairn"#,
    );
    assert_eq!(lines(&said), "/memfd:cairn (deleted)\n700");
    root.assert_clean();
}

#[test]
fn directories_of_the_caller_are_no_streams_of_the_command() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        mkdir shown; run image -- sh -c 'echo no' <shown || { echo "$?"; cat device/said; }"#,
    );
    let expected = "2\ncairn: standard input is a directory of this system, and the command would \
                    reach what is in it: give a file or a pipe, or show the directory with --bind";
    assert_eq!(lines(&said), expected);
}
