//! What a command sees, and what becomes of what it changes.

use std::fs;

use super::{FORMATS, Root, lines};

#[test]
fn a_command_sees_the_image_and_little_else() {
    for format in FORMATS {
        let root = Root::new(format);
        let said = root.script(
            r#"
            run image -- sh -c '
                echo "$(id -u):$(id -g) $PWD $HOME $PATH $GIVEN"
                ls /dev; set -- /proc/[0-9]*; echo $#; head -c 5 /dev/zero | wc -c
                echo x >/dev/null; echo shared >/dev/shm/x; echo short >/tmp/x; ls /tmp
                test -c /dev/random; test -d /sys/kernel; echo x 2>&- >/sys/x || echo "sys: $?"
                test ! -e /usr; echo new >/etc/new; cat /home/ann/file' || echo "failed: $?"
            cat device/said"#,
        );
        let expected = "
            0:0 / /root /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
            fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero
            2\n5\nx\nsys: 1
            ann's
            cairn: note: there is one user, to whom all files belong: ";
        let (seen, expected) = (lines(&said), lines(expected));
        assert!(seen.starts_with(&expected), "{seen}\n--\n{expected}");
        // What was made for mounts is gone again; what the command has made is there.
        assert_eq!(lines(&root.ask(&["ls", "/"])).replace("\nlost+found", ""), "bin\netc\nhome");
        assert_eq!(root.ask(&["ls", "/etc"]), "hosts\nnew\n");
        assert_eq!(root.ask(&["cat", "/etc/new"]), "new\n");
        root.assert_clean();
    }
}

/// Mount points are made on the image, and gone afterwards, and so is that they were.
#[test]
fn a_command_that_changes_nothing_changes_no_times() {
    for format in FORMATS {
        let root = Root::new(format);
        let said = root.script(
            r#"
            stamps() { ./cairn stat -c '%y %z' image $1; }
            for at in / /etc; do stamps $at; done >device/before
            run image -- sh -c 'test -e /proc/1'; run image -- ls /dev >device/out
            for at in / /etc; do stamps $at; done | cmp - device/before
            ./cairn ls image /
            run image -- sh -c 'echo x >/etc/x'
            test "$(stamps /)" = "$(head -n 1 device/before)" || echo "/ has changed"
            test "$(stamps /etc)" != "$(tail -n 1 device/before)" || echo "/etc has not changed""#,
        );
        assert_eq!(lines(&said).replace("\nlost+found", ""), "bin\netc\nhome", "{format}");
        root.assert_clean();
    }
}

#[test]
fn the_status_is_that_of_the_command() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        status() { run image -- "$@" || echo "$?"; }
        status sh -c 'exit 7'; status sh -c 'kill -9 $$'; status sh -c 'kill -TERM $$'
        status sh -c 'exit 0'; status missing; tail -n 1 device/said
        status /etc/hosts; tail -n 1 device/said"#,
    );
    let expected = "
        7\n137\n143\n127
        cairn: missing: no such program on the image, or its loader is not there: give a path that \
                    is on the image
        126
        cairn: /etc/hosts: permission denied: give a program for this machine that may be executed";
    assert_eq!(lines(&said), lines(expected));
    root.assert_clean();
}

#[test]
fn a_run_can_leave_the_image_as_it_was() {
    for format in FORMATS {
        let root = Root::new(format);
        let before = fs::read(root.image()).unwrap();
        let said = root.script(
            r#"
            run --ephemeral image -- sh -ec '
                head -c 8000000 /dev/zero >/big; rm /home/ann/file; echo x >/etc/hosts
                chown 0:0 /home/ann; cat /etc/hosts; ls /home/ann | wc -l'
            # Several at a time, beside readers.
            as_user ./cairn run --ephemeral image -- sleep 1 2>device/other & other=$!
            run --ephemeral image -- cat /home/ann/file; ./cairn cat image /home/ann/file
            wait $other || echo "failed: $?"
            run --ro image -- sh -c 'touch /new 2>/dev/null || echo refused'
            if run --ro --ephemeral image -- true; then echo both; fi"#,
        );
        assert_eq!(lines(&said), "x\n0\nann's\nann's\nrefused");
        assert!(fs::read(root.image()).unwrap() == before, "{format}: the image was changed");
    }
}

/// In its namespace the run could use all files of its caller.
#[test]
fn the_mode_of_the_image_counts() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        as_user chmod 444 image
        run image -- touch /new || { echo "$?"; cat device/said; }
        run --ephemeral image -- sh -c 'touch /new; echo ephemeral'
        run --ro image -- echo ro
        as_user chmod 200 image
        for option in --ro --ephemeral; do
            run $option image -- true || { echo "$?"; cat device/said; }
        done
        as_user chmod 600 image; chown 0:0 image
        run image -- true || echo "$?"; chown nobody image"#,
    );
    let image = root.image();
    let image = image.display();
    let unread = format!(
        "3\ncairn: {image}: you may not read the image: change its mode with `chmod u+r`, or its \
         owner"
    );
    let expected = format!(
        "3\ncairn: {image}: you may not write the image: give --ro to change nothing or \
         --ephemeral to drop changes, or change its mode with `chmod u+rw`\nephemeral\nro\n\
         {unread}\n{unread}\n3"
    );
    assert_eq!(lines(&said), expected);
    assert_eq!(root.ask(&["ls", "/etc"]), "hosts\n");
    root.assert_clean();
}

#[test]
fn files_of_the_host_are_shown_where_asked() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        mkdir shown; echo host >shown/file; chown -R nobody shown
        # A link of the image leads to the image, not to the host.
        ./cairn ln -s image /home /link
        run --bind "$PWD/shown:/mnt/a" --bind shown/file:/etc/hosts:ro --bind shown:/link/b:ro \
            image -- sh -c '
            cat /mnt/a/file /etc/hosts; echo new >/mnt/a/new
            echo x 2>&- >/etc/hosts || echo "file: $?"; echo x 2>&- >/link/b/x || echo "link: $?"
            cat /link/b/file' || echo "failed: $?"
        cat shown/new; test ! -e /home/b || echo "made on the host"
        for target in none:/mnt shown:/etc/hosts/b shown/file:/mnt/c shown:/home/ann/file; do
            run --bind "$target" image -- sh -c : || echo "$?"; tail -n 1 device/said |
                sed 's/^cairn: note.*/cairn: note/'
        done"#,
    );
    let image = root.image();
    let (image, elsewhere) = (image.display(), "nothing can be shown there");
    let expected = format!(
        "host\nhost\nfile: 1\nlink: 1\nhost\nnew\n\
         1\ncairn: none: no such file on this host: check the name\n\
         1\ncairn: {image}: /etc/hosts/b: {elsewhere}: not a directory: give another path of the \
         image\ncairn: note\n\
         1\ncairn: {image}: /home/ann/file: {elsewhere}: not a directory: give another path of \
         the image"
    );
    assert_eq!(lines(&said), expected);
    root.assert_clean();
    assert_eq!(root.ask(&["ls", "/etc"]), "hosts\n");
    assert_eq!(root.ask(&["cat", "/etc/hosts"]), "");
}

#[test]
fn granted_ids_are_those_of_the_image() {
    for format in FORMATS {
        let root = Root::new(format);
        let said = root.script(
            r#"
            ids 200000:70000
            run image -- sh -ec '
                stat -c %u:%g /home/ann/file; echo x >/tmp/x; chown 33:34 /etc/hosts
                touch /mine; chown 65535:7 /mine; stat -c %u:%g /etc/hosts /mine' || echo $?
            cat device/said
            # Without them, files of others are root'"'"'s, and keep their owners.
            echo >device/ids
            run image -- sh -c '
                stat -c %u:%g /home/ann/file; echo more >>/home/ann/file
                chown 5 /etc/hosts 2>/dev/null || echo refused; chmod 640 /home/ann/file'
            cut -c 1-63 device/said"#,
        );
        let expected = "
            1000:1001\n33:34\n65535:7\n0:0\nrefused
            cairn: note: there is one user, to whom all files belong: /etc/";
        assert_eq!(lines(&said), lines(expected));
        let facts = |path: &str| root.ask(&["stat", "-c", "%u:%g %a", path]);
        assert_eq!(facts("/home/ann/file"), "1000:1001 640\n");
        assert_eq!(facts("/etc/hosts"), "33:34 644\n");
        assert_eq!(root.ask(&["cat", "/home/ann/file"]), "ann's\nmore\n");
        root.assert_clean();
    }
}

/// Root outside would be root inside, who owns the host's `/proc/sys`. And who may mount could make
/// writable what is shown for reading.
#[test]
fn a_command_has_no_power_over_the_host() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        mkdir shown; echo host >shown/file; chown -R nobody shown
        ./cairn run image -- touch /new 2>device/said || echo "$?"
        grep -o -e --host-root device/said
        run --bind shown:/mnt:ro image -- sh -c '
            mount -o remount,bind,rw /mnt 2>/dev/null && echo remounted
            echo changed 2>/dev/null >/mnt/file || echo refused'
        cat shown/file"#,
    );
    assert_eq!(lines(&said), "2\n--host-root\nrefused\nhost");
    assert_eq!(root.ask(&["ls", "/etc"]), "hosts\n");
    root.assert_clean();
}
