//! A run at a terminal.

use super::{FORMATS, Root, lines};

/// Types into the terminal of a shell, which the arguments start. What it types follows, then
/// [`END`].
const TYPIST: &str = r#"
import os, pty, select, signal, sys, time
pid, master = pty.fork()
if pid == 0:
    # What runs in the background of a script ignores the keys of the terminal.
    for ignored in [signal.SIGINT, signal.SIGQUIT]: signal.signal(ignored, signal.SIG_DFL)
    os.setgid(65534); os.setgroups([]); os.setuid(65534)
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
def until(word):
    global seen
    end = time.time() + 60
    while word not in seen:
        if time.time() > end or not select.select([master], [], [], 60)[0]:
            sys.exit(f"no {word!r} in {seen!r}")
        try: more = os.read(master, 4096)
        except OSError: more = b""
        if not more: sys.exit(f"the end before {word!r}: {seen!r}")
        seen += more
    seen = seen[seen.index(word) + len(word):]
def type(line): os.write(master, line)
type(b"echo rea''dy\n"); until(b"ready\r\n")
"#;

/// Waits for the end, and prints the status.
const END: &str = r#"
while True:
    try:
        if not os.read(master, 4096): break
    except OSError: break
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

/// A shell on the image: Ctrl-C, Ctrl-Z and `fg` work as elsewhere.
const ON_THE_IMAGE: &str = r#"
# One SIGINT for the program, none for the shell and for cairn.
type(b"sh -c 'trap \"echo inter''rupted\" INT; echo wait''ing; sleep 9; echo en''ded'\n")
until(b"waiting\r\n"); time.sleep(0.3); type(b"\x03"); until(b"interrupted\r\n"); until(b"ended\r\n")
# The shell stops a program and goes on with it.
type(b"sleep 1 && echo sle''pt\n"); time.sleep(0.3); type(b"\x1a")
type(b"echo in''side; fg\n"); until(b"inside\r\n"); until(b"\r\n")
time.sleep(1.2)
type(b"test -t 0 && echo termi''nal; exit 5\n"); until(b"terminal\r\n")
"#;

/// A shell of the host, whose jobs are runs.
const OF_THE_HOST: &str = r#"
run = b"./cairn run image -- "
# The shell gets its terminal back, also from a program that was killed by Ctrl-C.
type(run + b"sh -c 'echo wait''ing; sleep 9'\n"); until(b"waiting\r\n")
time.sleep(0.3); type(b"\x03"); type(b"echo status $?.\n"); until(b"status 130.\r\n")
# It stops a run, and goes on with it in the foreground, where it reads the terminal.
type(run + b"sh -c 'echo wait''ing; read line; echo got $line; exit 4'\n"); until(b"waiting\r\n")
time.sleep(0.3); type(b"\x1a"); until(b"Stopped"); type(b"echo out''side; fg\n")
until(b"outside\r\n"); time.sleep(0.5); type(b"li''ne\n"); until(b"got li''ne\r\n")
type(b"echo status $?.\n"); until(b"status 4.\r\n")
# In the background it stops when it wants the terminal.
type(run + b"sh -c 'echo wait''ing; sleep 1; echo got $(head -n 1)'\n")
until(b"waiting\r\n"); time.sleep(0.2); type(b"\x1a"); until(b"Stopped")
type(b"bg; sleep 2; jobs; echo lis''ted\n"); until(b"Stopped"); until(b"listed\r\n")
type(b"fg\n"); time.sleep(0.5); type(b"again\n"); until(b"got again\r\n")
# Ctrl-C ends a script, too.
type(b'dash -c "' + run + b"sh -c 'echo wait\"\"ing; sleep 9'; echo after\"\n")
until(b"waiting\r\n"); time.sleep(0.3); type(b"\x03"); time.sleep(0.5)
type(b"echo status $?.\n"); until(b"status 130.\r\n")
# Behind a pipe, another program has the terminal.
type(run + b"echo pi''ped | dash -c 'cat; read line </dev/tty; echo got $line'\n")
until(b"piped\r\n"); type(b"third\n"); until(b"got third\r\n")
type(b"exit 6\n")
"#;

/// Ctrl-C at each moment of a start. Where it is lost, `sleep` goes on.
///
/// A key that comes before the program is there is for the shell, which may start the program all
/// the same and leave it the terminal.
const EARLY: &str = r#"
def in_front():
    try:
        with open(f"/proc/{os.tcgetpgrp(master)}/comm") as name: return name.read().strip()
    except OSError: return None
for n in range(24):
    type(b"./cairn run --ephemeral image -- sleep 50\n")
    until(b"sleep 50\r\n"); end = time.time() + 60
    while in_front() in (None, "bash"):
        if time.time() > end: sys.exit(f"in front is {in_front()}")
        time.sleep(0.001)
    time.sleep(n * 0.01); type(b"\x03"); time.sleep(0.05)
    type(b"\necho status $?.\n"); until(b"status 130.\r\n")
type(b"exit 7\n")
"#;

#[test]
fn a_key_that_ends_a_run_is_never_lost() {
    let root = Root::new(FORMATS[0]);
    std::fs::write(root.path("typist.py"), [TYPIST, EARLY, END].concat()).unwrap();
    let said = root.script("python3 typist.py $(command -v bash) --norc --noprofile -i");
    assert_eq!(lines(&said), "7");
    root.assert_clean();
}

#[test]
fn a_shell_at_a_terminal_gets_its_keys() {
    let root = Root::new(FORMATS[0]);
    std::fs::write(root.path("typist.py"), [TYPIST, ON_THE_IMAGE, END].concat()).unwrap();
    let said = root.script("python3 typist.py ./cairn run image -- sh -i");
    assert_eq!(lines(&said), "5");
    root.assert_clean();
}

#[test]
fn a_shell_controls_runs_as_jobs() {
    let root = Root::new(FORMATS[0]);
    std::fs::write(root.path("typist.py"), [TYPIST, OF_THE_HOST, END].concat()).unwrap();
    let said = root.script("python3 typist.py $(command -v bash) --norc --noprofile -i");
    assert_eq!(lines(&said), "6");
    root.assert_clean();
}

/// Debian's shell gives the terminal back to the group that it has found there.
#[test]
fn dash_ends_with_the_status_that_it_is_given() {
    let root = Root::empty(FORMATS[0]);
    let said = root.script(
        r#"
        mkdir tree; program=$(command -v dash); cp -L "$program" tree/dash
        for library in $(ldd "$program" | grep -o '/[^ ]*'); do
            mkdir -p "tree$(dirname "$library")"; cp -nL "$library" "tree$library"
        done
        ./cairn build -t ext4 --free 16M image tree/; chown nobody image
        ids 200000:70000
        as_user script -qec "./cairn run image -- /dash -ic 'exit 3'" /dev/null </dev/null ||
            echo "$?"
        echo 'exit 5' | as_user script -qec "./cairn run image -- /dash" /dev/null >device/all ||
            echo "$?"
        grep -a 'tty\|job control' device/all || true"#,
    );
    assert_eq!(lines(&said), "3\n5");
    root.assert_clean();
}

/// Its terminal has the name of a file where the volume is mounted.
#[test]
fn a_run_at_a_terminal_ends_without_complaints() {
    let root = Root::new(FORMATS[0]);
    let said = root.script(
        r#"
        ids 200000:70000
        for n in 1 2 3 4 5 6 7 8; do
            as_user script -qec "./cairn run image -- sh -c 'echo run >>/log'" /dev/null </dev/null
        done
        as_user ./cairn cat image /log | wc -l"#,
    );
    assert_eq!(lines(&said), "8");
    root.assert_clean();
}
