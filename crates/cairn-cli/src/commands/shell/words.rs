//! Splits lines into words, quoted as in sh.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The parser's place in a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Between words.
    #[default]
    Between,
    /// In a word, outside of quotes.
    Plain,
    /// Inside `'…'`.
    Single,
    /// Inside `"…"`.
    Double,
}

/// The words of one command, which may take several lines.
#[derive(Debug, Default)]
pub(super) struct Words {
    done: Vec<OsString>,
    word: Vec<u8>,
    state: State,
    /// The last line ended with a backslash.
    continued: bool,
    /// The first word that began with an operator of sh.
    operator: Option<u8>,
}

impl Words {
    /// Takes a line; true if the command ends with it.
    pub(super) fn take(&mut self, line: &[u8]) -> bool {
        if matches!(self.state, State::Single | State::Double) && !self.continued {
            self.word.push(b'\n');
        }
        self.continued = false;
        let mut bytes = line.iter().copied();
        while let Some(byte) = bytes.next() {
            match (self.state, byte) {
                (State::Between, b'#') => break,
                (State::Between, b' ' | b'\t' | b'\r') => {}
                (State::Plain, b' ' | b'\t' | b'\r') => self.close(),
                (State::Between | State::Plain, b'\'') => self.state = State::Single,
                (State::Between | State::Plain, b'"') => self.state = State::Double,
                (State::Single, b'\'') | (State::Double, b'"') => self.state = State::Plain,
                (State::Between | State::Plain | State::Double, b'\\') => {
                    self.escaped(bytes.next())
                }
                (State::Between, byte) => {
                    if matches!(byte, b'<' | b'>' | b'|' | b'&' | b';') {
                        self.operator = self.operator.or(Some(byte));
                    }
                    self.state = State::Plain;
                    self.word.push(byte);
                }
                (_, byte) => self.word.push(byte),
            }
        }
        if self.state == State::Plain && !self.continued {
            self.close();
        }
        !self.is_open()
    }

    /// A backslash, and what follows it; nothing at the end of a line.
    fn escaped(&mut self, next: Option<u8>) {
        let Some(byte) = next else {
            self.continued = true;
            return;
        };
        if self.state == State::Double && !matches!(byte, b'"' | b'\\' | b'$' | b'`') {
            self.word.push(b'\\');
        }
        if self.state != State::Double && self.is_pattern(byte) {
            self.word.push(b'\\');
        }
        if self.state == State::Between {
            self.state = State::Plain;
        }
        self.word.push(byte);
    }

    /// True if the byte needs a backslash in the word: the command expands patterns itself, and
    /// this byte is not part of one. For find(1) the shell removes the backslashes, because find
    /// parses its own patterns.
    fn is_pattern(&self, byte: u8) -> bool {
        matches!(byte, b'*' | b'?' | b'[')
            && self.done.first().is_none_or(|command| command != "find")
    }

    fn close(&mut self) {
        self.done.push(OsString::from_vec(std::mem::take(&mut self.word)));
        self.state = State::Between;
    }

    /// True if the command continues on the next line.
    pub(super) fn is_open(&self) -> bool {
        self.continued || matches!(self.state, State::Single | State::Double)
    }

    /// The words, or the reason why they are not a command.
    pub(super) fn end(self) -> Result<Vec<OsString>, String> {
        match self.operator.map(char::from) {
            None => Ok(self.done),
            Some(found) => Err(format!(
                "'{found}' has no meaning here: copy with get and put, give one command a line, \
                 and quote a name that begins with it"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(lines: &[&str]) -> Option<Vec<String>> {
        let mut words = Words::default();
        let mut whole = false;
        for line in lines {
            whole = words.take(line.as_bytes());
        }
        let words = whole.then(|| words.end().unwrap());
        words.map(|words| words.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn words_are_quoted_as_in_sh() {
        for (line, expected) in [
            ("", &[][..]),
            ("  # nothing", &[]),
            ("ls -l  /etc\t# all", &["ls", "-l", "/etc"]),
            ("a#b", &["a#b"]),
            ("'a b'\"c d\"e", &["a bc de"]),
            ("'' \"\"", &["", ""]),
            (r#"a\ b "a\"b\\c\d" 'a\b'"#, &["a b", r#"a"b\c\d"#, r"a\b"]),
            (r"\# \'", &["#", "'"]),
            // A character that sh would not expand is not expanded by the command either.
            (r"rm /\* a\?\[b] *", &["rm", r"/\*", r"a\?\[b]", "*"]),
            (r"find / -name \*.gz", &["find", "/", "-name", "*.gz"]),
            ("crlf\r", &["crlf"]),
        ] {
            assert_eq!(split(&[line]).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn operators_of_sh_are_refused_instead_of_taken_for_names() {
        let end = |line: &str| {
            let mut words = Words::default();
            assert!(words.take(line.as_bytes()));
            words.end()
        };
        for line in
            ["cat /x > file", "cat /x >file", "put - /x <in", "ls | wc", "ls ; df", "ls && df"]
        {
            assert!(end(line).unwrap_err().contains("has no meaning here"), "{line}");
        }
        for line in ["ls '>' \\> a>b", "touch \"|\" # > file"] {
            end(line).unwrap();
        }
    }

    #[test]
    fn commands_go_on_in_the_next_line() {
        assert_eq!(split(&["a \\", "b"]).unwrap(), ["a", "b"]);
        assert_eq!(split(&["a\\", "b"]).unwrap(), ["ab"]);
        assert_eq!(split(&["'a", "b'"]).unwrap(), ["a\nb"]);
        assert_eq!((split(&["'a"]), split(&["a \\"])), (None, None));
    }
}
