//! A run at a terminal.

use super::{FORMATS, Root, lines};

/// Types into a terminal whose shell is on the image: Ctrl-C, Ctrl-Z and `fg` work as elsewhere.
/// The arguments are the command. Prints what the terminal shows after `ready`.
const TYPIST: &str = r#"
import os, pty, select, sys, time
pid, master = pty.fork()
if pid == 0:
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
# One SIGINT for the program, none for the shell and for cairn.
type(b"sh -c 'trap \"echo inter''rupted\" INT; echo wait''ing; sleep 9; echo en''ded'\n")
until(b"waiting\r\n"); time.sleep(0.3); type(b"\x03"); until(b"interrupted\r\n"); until(b"ended\r\n")
# The shell stops a program and goes on with it.
type(b"sleep 1 && echo sle''pt\n"); time.sleep(0.3); type(b"\x1a")
type(b"echo in''side; fg\n"); until(b"inside\r\n"); until(b"\r\n")
time.sleep(1.2)
type(b"test -t 0 && echo termi''nal; exit 5\n"); until(b"terminal\r\n")
while True:
    try:
        if not os.read(master, 4096): break
    except OSError: break
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[test]
fn a_shell_at_a_terminal_gets_its_keys() {
    let root = Root::new(FORMATS[0]);
    std::fs::write(root.path("typist.py"), TYPIST).unwrap();
    let said = root.script("python3 typist.py ./cairn run image -- sh -i");
    assert_eq!(lines(&said), "5");
    root.assert_clean();
}
