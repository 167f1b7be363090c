//! The expression of `cairn find`: parsed once, then evaluated for every file. Nesting is bounded,
//! so that no command line overflows the stack.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use cairn_base::nearest::did_you_mean;
use cairn_vfs::{Attributes, FileKind, Timestamp};

use crate::commands::chmod::parse_octal;
use crate::date;
use crate::failure::{Failure, Outcome};
use crate::pattern::Pattern;
use crate::session::shown;

/// Greatest depth of parentheses.
const NESTING: usize = 64;

/// The file that an expression is evaluated for.
pub(super) struct Subject<'a> {
    pub path: &'a [u8],
    pub attributes: &'a Attributes,
    /// True if it has no bytes or entries. Called only if the result matters, because it may read.
    pub is_empty: &'a dyn Fn() -> bool,
}

/// The whole expression.
pub(super) struct Expression {
    root: Node,
    now: Timestamp,
    /// Files above this depth do not match.
    pub least_depth: usize,
    /// Directories this deep are not entered.
    pub most_depth: usize,
    /// True if a directory comes after its entries.
    pub depth_first: bool,
    /// True if no action is named: then matching files are printed.
    pub prints: bool,
}

/// An action of the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Prints the path and a newline.
    Print,
    /// Prints the path and a zero byte.
    PrintZero,
    /// Prints a line as of `ls -li`.
    List,
    /// Removes the file.
    Delete,
    /// Does not enter the directory.
    Prune,
    /// Ends the search.
    Quit,
}

/// Does an action. Returns whether it counts as a match.
pub(super) type Act<'a> = dyn FnMut(Action, &Subject<'_>) -> Outcome<bool> + 'a;

/// All words that can stand in an expression.
const WORDS: &[&str] = &[
    "-name",
    "-iname",
    "-path",
    "-type",
    "-size",
    "-newer",
    "-newermt",
    "-mtime",
    "-mmin",
    "-uid",
    "-gid",
    "-user",
    "-group",
    "-links",
    "-inum",
    "-perm",
    "-mindepth",
    "-maxdepth",
    "-empty",
    "-print",
    "-print0",
    "-ls",
    "-delete",
    "-prune",
    "-quit",
    "-depth",
    "-not",
    "-and",
    "-or",
    "-true",
    "-false",
];

enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Test(Test),
    Action(Action),
}

enum Test {
    Name(Pattern),
    NameInAnyCase(Pattern),
    Path(Pattern),
    Kinds(Vec<FileKind>),
    Size(Number, u64),
    Newer(Timestamp),
    /// Age since the last change, in units of this many seconds.
    Age(Number, i64),
    Uid(Number),
    Gid(Number),
    Links(Number),
    Inode(Number),
    Permissions(Bits, u32),
    Empty,
    Always,
    Never,
}

/// `N`, `+N` or `-N`.
#[derive(Clone, Copy)]
enum Number {
    Is(u64),
    More(u64),
    Less(u64),
}

#[derive(Clone, Copy)]
enum Bits {
    Exactly,
    AllOf,
    AnyOf,
}

type MtimeOf<'a> = &'a dyn Fn(&[u8]) -> Outcome<Timestamp>;

struct Parser<'a> {
    words: std::iter::Peekable<std::slice::Iter<'a, OsString>>,
    mtime_of: MtimeOf<'a>,
    expression: Expression,
}

impl Expression {
    /// Parses the words; ages count back from `now`, and `mtime_of` gives the time of a file on the
    /// volume.
    pub(super) fn parse(
        words: &[OsString],
        now: Timestamp,
        mtime_of: MtimeOf<'_>,
    ) -> Outcome<Self> {
        let expression = Self {
            root: Node::All(Vec::new()),
            now,
            least_depth: 0,
            most_depth: usize::MAX,
            depth_first: false,
            prints: true,
        };
        let mut parser = Parser { words: words.iter().peekable(), mtime_of, expression };
        let root = parser.any(0)?;
        if let Some(word) = parser.words.next() {
            return Err(wrong(
                word.as_bytes(),
                "a test or action is missing here: check the parentheses, and put paths first",
            ));
        }
        Ok(Self { root, ..parser.expression })
    }

    /// True if the file matches. Evaluation also does the actions.
    ///
    /// # Errors
    /// Those of `act`.
    pub(super) fn matches(&self, subject: &Subject<'_>, act: &mut Act<'_>) -> Outcome<bool> {
        self.root.matches(subject, self.now, act)
    }
}

fn wrong(word: &[u8], why: &str) -> Failure {
    Failure::usage(format!("find: {}: {why}", shown(word)))
}

impl Parser<'_> {
    fn any(&mut self, depth: usize) -> Outcome<Node> {
        let mut nodes = vec![self.all(depth)?];
        while self.words.next_if(|word| matches!(word.as_bytes(), b"-o" | b"-or")).is_some() {
            nodes.push(self.all(depth)?);
        }
        Ok(Node::Any(nodes))
    }

    fn all(&mut self, depth: usize) -> Outcome<Node> {
        let mut nodes = Vec::new();
        while let Some(word) =
            self.words.next_if(|word| !matches!(word.as_bytes(), b"-o" | b"-or" | b")"))
        {
            if !matches!(word.as_bytes(), b"-a" | b"-and") {
                nodes.push(self.one(word.as_bytes(), depth)?);
            }
        }
        Ok(Node::All(nodes))
    }

    fn one(&mut self, word: &[u8], depth: usize) -> Outcome<Node> {
        if depth > NESTING {
            return Err(wrong(word, "too deep: use fewer parentheses"));
        }
        match word {
            b"!" | b"-not" => {
                let next = self.words.next().ok_or_else(|| wrong(word, "something must follow"))?;
                Ok(Node::Not(Box::new(self.one(next.as_bytes(), depth + 1)?)))
            }
            b"(" => {
                let inside = self.any(depth + 1)?;
                match self.words.next().map(|word| word.as_bytes()) {
                    Some(b")") => Ok(inside),
                    _ => Err(wrong(word, "the parenthesis is not closed")),
                }
            }
            _ => match action(word) {
                Some(action) => {
                    // As in find(1), with these two actions alone matching files are still printed.
                    self.expression.prints &= matches!(action, Action::Prune | Action::Quit);
                    self.expression.depth_first |= action == Action::Delete;
                    Ok(Node::Action(action))
                }
                None => self.test(word).map(Node::Test),
            },
        }
    }

    fn test(&mut self, word: &[u8]) -> Outcome<Test> {
        match word {
            b"-empty" => return Ok(Test::Empty),
            b"-true" => return Ok(Test::Always),
            b"-false" => return Ok(Test::Never),
            b"-depth" => {
                self.expression.depth_first = true;
                return Ok(Test::Always);
            }
            b"-exec" | b"-execdir" | b"-ok" | b"-okdir" => {
                let why = "programs of this host cannot open files of an image: use -delete, or \
                    pipe -print0 to xargs -0 cairn COMMAND IMAGE, or use cairn mount";
                return Err(wrong(word, why));
            }
            word if !WORDS.iter().any(|known| known.as_bytes() == word) => {
                let meant = did_you_mean(&String::from_utf8_lossy(word), WORDS.iter().copied());
                return Err(wrong(
                    word,
                    &format!("not known here{meant}: cairn find --help lists the tests"),
                ));
            }
            _ => {}
        }
        let value = self.words.next().ok_or_else(|| wrong(word, "a value must follow"))?.as_bytes();
        self.test_of(word, value)
    }

    /// A test with its value.
    fn test_of(&mut self, word: &[u8], value: &[u8]) -> Outcome<Test> {
        let text = String::from_utf8_lossy(value);
        let refused =
            |why: &str| wrong(word, &format!("'{}' is not understood: {why}", shown(value)));
        let number = || {
            parse_number(&text)
                .ok_or_else(|| refused("give a number, with + or - for more or less"))
        };
        let owner = || {
            text.parse()
                .map(Number::Is)
                .map_err(|_| refused("names of users and groups are not known here: give a number"))
        };
        let depth = || text.parse::<usize>().map_err(|_| refused("give a number"));
        Ok(match word {
            b"-name" => Test::Name(Pattern::parse(value)),
            b"-iname" => Test::NameInAnyCase(Pattern::parse(text.to_lowercase().as_bytes())),
            b"-path" => Test::Path(Pattern::parse(value)),
            b"-type" => Test::Kinds(
                parse_kinds(&text)
                    .ok_or_else(|| refused("the types are f, d, l, b, c, p and s"))?,
            ),
            b"-size" => {
                let (number, unit) = parse_size(&text)
                    .ok_or_else(|| refused("give a number with c, w, b, k, M or G"))?;
                Test::Size(number, unit)
            }
            b"-newer" => Test::Newer((self.mtime_of)(value)?),
            b"-newermt" => Test::Newer(date::parse(&text).map_err(|why| refused(&why))?),
            b"-mtime" => Test::Age(number()?, 86_400),
            b"-mmin" => Test::Age(number()?, 60),
            b"-uid" => Test::Uid(number()?),
            b"-gid" => Test::Gid(number()?),
            b"-user" => Test::Uid(owner()?),
            b"-group" => Test::Gid(owner()?),
            b"-links" => Test::Links(number()?),
            b"-inum" => Test::Inode(number()?),
            b"-perm" => {
                let (bits, mode) = parse_permissions(&text).map_err(|why| refused(&why))?;
                Test::Permissions(bits, mode)
            }
            b"-mindepth" => {
                self.expression.least_depth = depth()?;
                Test::Always
            }
            _ => {
                self.expression.most_depth = depth()?;
                Test::Always
            }
        })
    }
}

fn action(word: &[u8]) -> Option<Action> {
    Some(match word {
        b"-print" => Action::Print,
        b"-print0" => Action::PrintZero,
        b"-ls" => Action::List,
        b"-delete" => Action::Delete,
        b"-prune" => Action::Prune,
        b"-quit" => Action::Quit,
        _ => return None,
    })
}

fn parse_number(text: &str) -> Option<Number> {
    let (kind, digits): (fn(u64) -> Number, _) = match text.as_bytes().first()? {
        b'+' => (Number::More, text.get(1..)?),
        b'-' => (Number::Less, text.get(1..)?),
        _ => (Number::Is, text),
    };
    digits.parse().ok().filter(|_| !digits.starts_with('+')).map(kind)
}

fn parse_size(text: &str) -> Option<(Number, u64)> {
    let (number, unit) = match text.as_bytes().last()? {
        b'c' => (text.get(..text.len() - 1)?, 1),
        b'w' => (text.get(..text.len() - 1)?, 2),
        b'b' => (text.get(..text.len() - 1)?, 512),
        b'k' => (text.get(..text.len() - 1)?, 1 << 10),
        b'M' => (text.get(..text.len() - 1)?, 1 << 20),
        b'G' => (text.get(..text.len() - 1)?, 1 << 30),
        _ => (text, 512),
    };
    Some((parse_number(number)?, unit))
}

fn parse_kinds(text: &str) -> Option<Vec<FileKind>> {
    text.split(',')
        .map(|letter| {
            Some(match letter {
                "f" => FileKind::Regular,
                "d" => FileKind::Directory,
                "l" => FileKind::Symlink,
                "b" => FileKind::BlockDevice,
                "c" => FileKind::CharDevice,
                "p" => FileKind::Fifo,
                "s" => FileKind::Socket,
                _ => return None,
            })
        })
        .collect()
}

fn parse_permissions(text: &str) -> Result<(Bits, u32), String> {
    let (bits, mode) = match text.as_bytes().first() {
        Some(b'-') => (Bits::AllOf, text.get(1..)),
        Some(b'/') => (Bits::AnyOf, text.get(1..)),
        _ => (Bits::Exactly, Some(text)),
    };
    Ok((bits, parse_octal(mode.unwrap_or_default())?))
}

impl Number {
    fn matches(self, value: u64) -> bool {
        match self {
            Self::Is(number) => value == number,
            Self::More(number) => value > number,
            Self::Less(number) => value < number,
        }
    }
}

impl Number {
    /// Compares an age in units, as find(1) does: days count when they are complete, minutes when
    /// they have begun, except for "more than".
    fn matches_age(self, seconds: i64, unit: i64) -> bool {
        let begun = unit == 60 && !matches!(self, Self::More(_));
        let units =
            if begun { (seconds + unit - 1).div_euclid(unit) } else { seconds.div_euclid(unit) };
        match u64::try_from(units) {
            Ok(units) => self.matches(units),
            // The file's time is in the future.
            Err(_) => matches!(self, Self::Less(_)),
        }
    }
}

impl Node {
    fn matches(&self, subject: &Subject<'_>, now: Timestamp, act: &mut Act<'_>) -> Outcome<bool> {
        let (nodes, decides) = match self {
            Self::Not(node) => return Ok(!node.matches(subject, now, act)?),
            Self::Test(test) => return Ok(test.matches(subject, now)),
            Self::Action(action) => return act(*action, subject),
            Self::All(nodes) => (nodes, false),
            Self::Any(nodes) => (nodes, true),
        };
        for node in nodes {
            if node.matches(subject, now, act)? == decides {
                return Ok(decides);
            }
        }
        Ok(!decides)
    }
}

impl Test {
    fn matches(&self, subject: &Subject<'_>, now: Timestamp) -> bool {
        let of = subject.attributes;
        let name =
            subject.path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or(b"/");
        match self {
            Self::Name(pattern) => pattern.matches(name),
            Self::NameInAnyCase(pattern) => {
                pattern.matches(String::from_utf8_lossy(name).to_lowercase().as_bytes())
            }
            Self::Path(pattern) => pattern.matches(subject.path),
            Self::Kinds(kinds) => kinds.contains(&of.kind),
            Self::Size(number, unit) => number.matches(of.size.div_ceil(*unit)),
            Self::Newer(time) => of.mtime > *time,
            Self::Age(number, unit) => {
                number.matches_age(now.seconds.saturating_sub(of.mtime.seconds), *unit)
            }
            Self::Uid(number) => number.matches(of.uid.into()),
            Self::Gid(number) => number.matches(of.gid.into()),
            Self::Links(number) => number.matches(of.links.into()),
            Self::Inode(number) => number.matches(of.ino.get()),
            Self::Permissions(Bits::Exactly, mode) => of.permissions == *mode,
            Self::Permissions(Bits::AllOf, mode) => of.permissions & mode == *mode,
            Self::Permissions(Bits::AnyOf, mode) => *mode == 0 || of.permissions & mode != 0,
            Self::Empty => (subject.is_empty)(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}
