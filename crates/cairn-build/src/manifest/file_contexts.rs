//! SELinux's `file_contexts`: `REGEX [TYPE] CONTEXT`, as setfiles(8) and Android's build read it.
//!
//! A line is for the paths that its expression matches as a whole. Of several lines the last one
//! decides, but one that is a plain path goes before all expressions.

use cairn_vfs::FileKind;
use regex::bytes::{Regex, RegexBuilder};

use super::words::{self, Parsed, shown};
use crate::node::SELINUX;

/// The attribute.
pub(super) const NAME: &[u8] = SELINUX;
/// Most lines, and most memory of an expression.
const LINES_MAX: usize = 20_000;
const REGEX_MAX: usize = 1 << 18;
/// What ends the plain beginning of an expression.
const META: &[u8] = b".^$?*+|[](){}";

/// The value of the attribute: the kernel's tools end it with a NUL.
pub(super) fn value(context: &[u8]) -> Vec<u8> {
    [context, b"\0"].concat()
}

/// The lines of a file.
#[derive(Debug, Default)]
pub(super) struct FileContexts {
    /// Plain paths first; otherwise the last line first.
    specs: Vec<Spec>,
}

#[derive(Debug)]
struct Spec {
    /// A path that matches begins so, or is this if there is no expression.
    begin: Vec<u8>,
    regex: Option<Regex>,
    kind: Option<FileKind>,
    /// None: files get no label.
    context: Option<Vec<u8>>,
}

/// True if a line says that its file has this form.
pub(super) fn is_line(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = words::fields(line).collect();
    let (spec, context) = match fields.as_slice() {
        [spec, context] => (spec, context),
        [spec, kind, context] if file_kind(kind).is_some() => (spec, context),
        _ => return false,
    };
    let is_context = *context == b"<<none>>" || context.split(|byte| *byte == b':').count() >= 3;
    is_context && (spec.starts_with(b"/") || spec.starts_with(b"("))
}

fn file_kind(word: &[u8]) -> Option<FileKind> {
    Some(match word {
        b"--" => FileKind::Regular,
        b"-d" => FileKind::Directory,
        b"-l" => FileKind::Symlink,
        b"-c" => FileKind::CharDevice,
        b"-b" => FileKind::BlockDevice,
        b"-p" => FileKind::Fifo,
        b"-s" => FileKind::Socket,
        _ => return None,
    })
}

impl FileContexts {
    /// Reads a file.
    ///
    /// # Errors
    /// The number of a line that cannot be read, and why.
    pub(super) fn parse(text: &[u8]) -> Result<Self, (usize, String)> {
        let (mut plain, mut others) = (Vec::new(), Vec::new());
        for (number, line) in words::lines(text) {
            let spec = spec(line).map_err(|why| (number, why))?;
            if spec.regex.is_none() {
                plain.push(spec)
            } else {
                others.push(spec)
            }
            if plain.len() + others.len() > LINES_MAX {
                return Err((number, format!("more than {LINES_MAX} lines")));
            }
        }
        plain.reverse();
        plain.extend(others.into_iter().rev());
        Ok(Self { specs: plain })
    }

    /// The context of a whole path, which begins with a slash; `Some(None)` if it shall have none,
    /// and `None` if no line is for it.
    pub(super) fn find(&self, path: &[u8], kind: FileKind) -> Option<Option<&[u8]>> {
        let found = self.specs.iter().find(|spec| spec.is_for(path, kind));
        found.map(|spec| spec.context.as_deref())
    }
}

impl Spec {
    fn is_for(&self, path: &[u8], kind: FileKind) -> bool {
        if self.kind.is_some_and(|wanted| wanted != kind) {
            return false;
        }
        match &self.regex {
            Some(regex) => path.starts_with(&self.begin) && regex.is_match(path),
            None => path == self.begin,
        }
    }
}

fn spec(line: &[u8]) -> Parsed<Spec> {
    let mut fields = words::fields(line);
    let text = fields.next().ok_or("it has no expression")?;
    let second = fields.next().ok_or("it has no context")?;
    let (kind, context) = match fields.next() {
        None => (None, second),
        Some(context) => {
            let kind = file_kind(second);
            let wrong = || format!("there is no type {}: as in ls, -- is a file", shown(second));
            (Some(kind.ok_or_else(wrong)?), context)
        }
    };
    if let Some(more) = fields.next() {
        return Err(format!("{} is one field too many", shown(more)));
    }
    let context = (context != b"<<none>>").then(|| value(context));
    let (begin, is_whole) = plain(text);
    let regex = if is_whole { None } else { Some(compiled(text)?) };
    Ok(Spec { begin, regex, kind, context })
}

fn compiled(text: &[u8]) -> Parsed<Regex> {
    let wrong = || format!("{} is no regular expression", shown(text));
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    let mut builder = RegexBuilder::new(&format!("^(?:{text})$"));
    let built = builder.unicode(false).size_limit(REGEX_MAX).dfa_size_limit(REGEX_MAX).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => format!("{} is too large", shown(text.as_bytes())),
        _ => wrong(),
    })
}

/// The bytes with which every match begins, and whether they are all of it.
fn plain(text: &[u8]) -> (Vec<u8>, bool) {
    let mut begin = Vec::new();
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let (byte, behind) = match (first, behind.split_first()) {
            // A letter behind a backslash stands for a class.
            (b'\\', Some((mark, behind))) if mark.is_ascii_punctuation() => (*mark, behind),
            (b'\\', _) => return (begin_without_choice(text, begin), false),
            (byte, _) if META.contains(byte) => break,
            (byte, _) => (*byte, behind),
        };
        // It may be there or not.
        if matches!(behind.first(), Some(b'?' | b'*' | b'{')) {
            break;
        }
        begin.push(byte);
        rest = behind;
    }
    let is_whole = rest.is_empty();
    (begin_without_choice(text, begin), is_whole)
}

/// With several choices there is no beginning that all have.
fn begin_without_choice(text: &[u8], begin: Vec<u8>) -> Vec<u8> {
    let (mut depth, mut bytes) = (0_u32, text.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => return Vec::new(),
            // What a set holds is not looked at.
            b'[' if text.contains(&b'|') => return Vec::new(),
            _ => {}
        }
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_decides_and_plain_paths_go_first() {
        let text = b"/system/bin/sh -- u:r:shell:s0\n/system(/.*)? u:r:system:s0\n\
            /system/bin/.* -- u:r:bin:s0\n/system/bin/s.* -l u:r:links:s0\n/x\\.y u:r:xy:s0\n\
            /no|/none <<none>>\n";
        let contexts = FileContexts::parse(text).unwrap();
        let find = |path: &str, kind| {
            let found = contexts.find(path.as_bytes(), kind);
            found.map(|label| label.map_or(String::new(), |label| label.escape_ascii().to_string()))
        };
        let is = |name: &str| Some(format!("u:r:{name}:s0\\x00"));
        assert_eq!(find("/system/bin/sh", FileKind::Regular), is("shell"));
        assert_eq!(find("/system/bin/sh", FileKind::Symlink), is("links"));
        assert_eq!(find("/system/bin/ls", FileKind::Regular), is("bin"));
        assert_eq!(find("/system/bin", FileKind::Directory), is("system"));
        assert_eq!(find("/systems", FileKind::Directory), None);
        assert_eq!(find("/x.y", FileKind::Regular), is("xy"));
        assert_eq!(find("/xzy", FileKind::Regular), None);
        assert_eq!(find("/none", FileKind::Regular), Some(String::new()));
        assert_eq!(find("/", FileKind::Directory), None);
    }

    #[test]
    fn lines_that_cannot_be_read() {
        for (wrong, why) in [
            (&b"/a"[..], "no context"),
            (b"/a -x u:r:a:s0", "'-x'"),
            (b"/a -- u:r:a:s0 more", "too many"),
            (b"/(a u:r:a:s0", "expression"),
            (b"/(?=a)b u:r:a:s0", "expression"),
            (b"/[^x]{9999}{9999} u:r:a:s0", "too large"),
            (b"/\xff.* u:r:a:s0", "expression"),
        ] {
            let (line, said) = FileContexts::parse(wrong).unwrap_err();
            assert!(line == 1 && said.contains(why), "{}: {said}", wrong.escape_ascii());
        }
    }
}
