//! How runs end: signals, kills, programs that are left.

use super::{FORMATS, Root, lines};

#[test]
fn programs_that_are_left_end_with_the_command() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        before=$(cat /proc/self/mountinfo | wc -l)
        run image -- sh -c 'sleep 1000.5 & (sleep 1000.5 &) ; trap "" TERM; echo left >/left'
        ps ax -o args | grep '^sleep 1000.5' || echo none
        test $before = $(cat /proc/self/mountinfo | wc -l) || echo "mounts are left"
        ls -a /tmp | grep '^cairn-run-.*\.' || true
        as_user ./cairn cat image /left"#,
    );
    assert_eq!(lines(&said), "none\nleft");
    root.assert_clean();
}

#[test]
fn signals_reach_the_command_once() {
    let root = Root::new(FORMATS[1]);
    let said = root.script(
        r#"
        for name in TERM INT USR1; do
            rm -f device/ready; mkfifo device/ready; chmod 666 device/ready
            # In the background of a script, SIGINT would be ignored.
            setpriv --reuid=65534 --regid=65534 --clear-groups -- env --default-signal=INT \
                ./cairn run --bind device/ready:/ready image -- sh -c '
                n=0; trap "n=\$((n+1))" '$name'; echo >/ready
                while [ $n = 0 ]; do sleep 0.05; done; sleep 0.3; echo "'$name' $n"; exit 9' \
                2>device/said & run=$!
            read -r line <device/ready; kill -$name $run
            wait $run || echo "$?"
        done"#,
    );
    assert_eq!(lines(&said), "TERM 1\n9\nINT 1\n9\nUSR1 1\n9");
    root.assert_clean();
}

/// A signal at each moment of a start. Where it is lost, `sleep` goes on.
#[test]
fn a_signal_that_is_sent_during_the_start_ends_the_run() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        for n in $(seq 0 47); do
            setpriv --reuid=65534 --regid=65534 --clear-groups -- \
                ./cairn run --ephemeral image -- sleep 50 2>device/said & run=$!
            until test "$(cat /proc/$run/comm)" = cairn; do :; done
            sleep $(printf '0.0%02d' $n); kill -TERM $run
            { wait $run; } 2>/dev/null || echo "$?"
        done | sort | uniq -c"#,
    );
    assert_eq!(lines(&said), "48 143");
    root.assert_clean();
}

/// The kernel ends the command with its starter, and the server closes the volume.
#[test]
fn a_killed_run_leaves_a_volume_that_is_whole() {
    for format in FORMATS {
        let root = Root::new(format);
        let said = root.script(
            r#"
            before=$(cat /proc/self/mountinfo | wc -l); mkdir -m 777 device/tmp
            for delay in 0.0 0.01 0.03 0.1 0.3; do
                setpriv --reuid=65534 --regid=65534 --clear-groups -- \
                    env TMPDIR=$PWD/device/tmp ./cairn run image -- sh -c '
                    n=0; while :; do n=$((n+1)); echo $n >/n.$n; echo $n >>/log; done' \
                    >device/out 2>&1 & run=$!
                sleep $delay; kill -KILL $run; { wait $run; } 2>/dev/null || true
                # The image is locked until the server has ended.
                for try in $(seq 300); do
                    as_user ./cairn info image >/dev/null 2>&1 && break; sleep 0.1
                done
                as_user ./cairn ls image / >device/names || echo "cannot be read"
                grep -x -e proc -e dev -e sys -e tmp device/names || true
                ps ax -o args | grep -c '^sh -c n=0' | grep -v '^0' || true
            done
            test $before = $(cat /proc/self/mountinfo | wc -l) || echo "mounts are left"
            for try in $(seq 100); do
                ps ax -o args | grep '^cairn run-stage' | grep -q " $PWD/image " || break; sleep 0.1
            done
            ps ax -o args | grep '^cairn run-stage' | grep " $PWD/image " || true
            ls -A device/tmp
            run image -- sh -c 'test ! -e /log || test $(wc -l </log) -gt 0; echo again'"#,
        );
        assert_eq!(lines(&said), "again", "{format}");
        root.assert_clean();
    }
}

#[test]
fn a_killed_server_is_said_and_recovered() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        mkfifo device/ready; chmod 666 device/ready
        setpriv --reuid=65534 --regid=65534 --clear-groups -- \
            ./cairn run --bind device/ready:/ready image -- sh -c '
            echo synced >/synced; sync /synced; echo >/ready
            while :; do :; done' \
            2>device/said & run=$!
        read -r line <device/ready
        for server in $(pgrep -P $run); do
            ps -o args= $server | grep -q '^cairn run-stage serve' && kill -KILL $server
        done
        wait $run || echo "$?"
        tail -n 1 device/said | cut -d : -f 3
        # What this run has made is on the image until the next one.
        as_user ./cairn ls image / | grep -x -e proc -e dev -e sys -e tmp
        run image -- cat /synced
        as_user ./cairn ls image / | grep -x -e proc -e dev -e sys -e tmp -e etc
        as_user ./cairn getfattr -m - image /"#,
    );
    let expected = "7\nthe server has ended before the command\ndev\nproc\nsys\ntmp\nsynced\netc";
    assert_eq!(lines(&said), expected);
    root.assert_clean();
}

/// What reads the image afterwards sees what the command has synced, and nothing that the run has
/// made for itself. It changes neither the image nor anything else.
#[test]
fn copies_of_an_image_whose_server_was_killed_are_whole() {
    for format in FORMATS {
        let root = Root::new(format);
        let said = root.script(
            r#"
            outside() { find . -mindepth 1 ! -path './device*' ! -name image -printf '%p %i %s %T@\n'; }
            outside | sort >device/outside; before=$(cat /proc/self/mountinfo | wc -l)
            mkfifo device/ready; chmod 666 device/ready
            setpriv --reuid=65534 --regid=65534 --clear-groups -- \
                ./cairn run --bind device/ready:/bound/ready image -- sh -c '
                echo synced >/synced; sync /synced; sync /; echo >/bound/ready
                while :; do :; done' \
                2>device/said & run=$!
            read -r line <device/ready
            for server in $(pgrep -P $run); do
                ps -o args= $server | grep -q '^cairn run-stage serve' && kill -KILL $server
            done
            wait $run || echo "$?"
            outside | sort | cmp - device/outside
            test $before = $(cat /proc/self/mountinfo | wc -l) || echo "mounts are left"
            as_user ./cairn ls image / | grep -x -e proc -e bound
            sum=$(cksum <image); mkdir -m 777 device/out
            as_user ./cairn build device/out/copy image 2>device/said
            grep -c 'left out what a killed run has made' device/said
            as_user ./cairn cat device/out/copy /synced; as_user ./cairn ls device/out/copy /
            as_user ./cairn export image -o device/out/tar 2>device/said
            tar -tf device/out/tar | grep -e ^proc -e ^bound -e ^synced -e resolv
            as_user ./cairn diff image device/out/tar 2>device/said
            as_user ./cairn check image >device/out/checked 2>&1 || echo "check: $?"
            test "$sum" = "$(cksum <image)" || echo "the image was changed"
            run image -- cat /synced
            as_user ./cairn ls image / | grep -x -e proc -e bound -e synced"#,
        );
        let expected = "7\nbound\nproc\n1\nsynced\nbin\netc\nhome\nsynced\nsynced\nsynced\nsynced";
        assert_eq!(lines(&said).replace("\nlost+found", ""), expected, "{format}");
        root.assert_clean();
    }
}

/// With limits of addresses or of the stack, commands run in a thread of their own. Those that
/// enter namespaces must not.
#[test]
fn limits_of_addresses_and_of_the_stack_stop_no_run() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        (ulimit -v 6000000; run image -- sh -c 'echo addresses; echo a >/a')
        (ulimit -s 256; run image -- sh -c 'echo stack; cat /a')"#,
    );
    assert_eq!(lines(&said), "addresses\nstack\na");
    root.assert_clean();
}
