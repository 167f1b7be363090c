//! The handshake, seen from the client: what the server exports, and which headers are used.
//!
//! Fixed newstyle with `NBD_OPT_GO`; servers without that option get `NBD_OPT_EXPORT_NAME`. The
//! whole of it must end before a deadline, and no message is longer than a few KiB.

use cairn_block::{Error, ErrorKind};

use crate::address::{Address, TlsWish};
use crate::clock::Deadline;
use crate::failure::Broken;
use crate::transport::{Incoming, Outgoing, Tls};
use crate::wire::option::{self, Contexts, Go, Info, ReplyHeader};
use crate::wire::{BlockSizes, ExportFlags, HandshakeFlags, Headers, INIT_MAGIC, OLD_MAGIC};
use crate::wire::{Violation, fields::Fields};

/// Messages that a server may send in answer to one option.
const MAX_REPLIES: usize = 4096;
/// Names of exports that an error repeats.
const NAMES: usize = 8;

type Result<T> = std::result::Result<T, Broken>;

/// What both sides have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) size: u64,
    pub(super) flags: ExportFlags,
    pub(super) blocks: BlockSizes,
    pub(super) headers: Headers,
    /// The number of `base:allocation` in answers.
    pub(super) allocation: Option<u32>,
}

/// A connection during its negotiation.
pub(super) struct Negotiation<'a> {
    pub(super) incoming: &'a mut Incoming,
    pub(super) outgoing: &'a mut Outgoing,
    pub(super) deadline: Deadline,
}

/// One answer to an option.
struct Reply {
    kind: u32,
    data: Vec<u8>,
}

impl Reply {
    /// The server's words, if it has some.
    fn words(&self) -> String {
        match String::from_utf8_lossy(&self.data) {
            words if words.is_empty() => String::new(),
            words => format!(" (the server says: {})", words.escape_debug()),
        }
    }
}

fn refused(kind: ErrorKind, detail: String) -> Broken {
    Broken::Refused(Error::new(kind, "connect", detail))
}

impl Negotiation<'_> {
    /// Agrees on everything. The next message is the first request.
    pub(super) fn agree(&mut self, address: &Address) -> Result<Agreed> {
        let no_zeroes = self.greet()?;
        if let Some(wish) = &address.tls {
            self.secure(address, wish)?;
        }
        let headers = self.headers()?;
        let allocation = match headers {
            Headers::Simple => None,
            _ => self.allocation(&address.export)?,
        };
        let (size, flags, blocks) = match self.go(&address.export)? {
            Some(export) => export,
            None if headers == Headers::Extended => {
                let detail = "the server knows no NBD_OPT_GO: use a newer server".to_owned();
                return Err(refused(ErrorKind::Unsupported, detail));
            }
            None => self.export_name(&address.export, no_zeroes)?,
        };
        if !flags.contains(ExportFlags::HAS_FLAGS) {
            return Err(
                Violation::Value { what: "an export's flags", found: flags.bits().into() }.into()
            );
        }
        Ok(Agreed { size, flags, blocks, headers, allocation })
    }

    /// The first bytes of both sides. True if the server leaves out zeros where it can.
    fn greet(&mut self) -> Result<bool> {
        let magic = u64::from_be_bytes(self.array()?);
        if magic != INIT_MAGIC {
            return Err(Violation::Magic { what: "an NBD server", found: magic }.into());
        }
        match u64::from_be_bytes(self.array()?) {
            option::MAGIC => {}
            OLD_MAGIC => return Err(old()),
            found => return Err(Violation::Magic { what: "the negotiation", found }.into()),
        }
        let flags = HandshakeFlags::from_bits_truncate(u16::from_be_bytes(self.array()?));
        if !flags.contains(HandshakeFlags::FIXED_NEWSTYLE) {
            return Err(old());
        }
        self.outgoing.send_bytes(&u32::from(flags.bits()).to_be_bytes())?;
        Ok(flags.contains(HandshakeFlags::NO_ZEROES))
    }

    /// Everything from here on is encrypted, or the server is refused.
    fn secure(&mut self, address: &Address, wish: &TlsWish) -> Result<()> {
        let reply = self.ask(option::STARTTLS, &[])?;
        if reply.kind != option::REP_ACK {
            let words = reply.words();
            let detail = format!("the server has no TLS{words}: write nbd:// to go without");
            return Err(refused(ErrorKind::PermissionDenied, detail));
        }
        let tls = Tls::connect(self.incoming.socket(), address, wish, self.deadline)?;
        if !self.incoming.secure(tls.clone()) {
            let what = "the number of bytes in clear behind the agreement on TLS";
            return Err(Violation::Value { what, found: 1 }.into());
        }
        self.outgoing.secure(tls);
        Ok(())
    }

    fn headers(&mut self) -> Result<Headers> {
        for (number, headers) in [
            (option::EXTENDED_HEADERS, Headers::Extended),
            (option::STRUCTURED_REPLY, Headers::Structured),
        ] {
            let reply = self.ask(number, &[])?;
            match reply.kind {
                option::REP_ACK => return Ok(headers),
                option::REP_ERR_TLS_REQD => return Err(needs_tls()),
                _ => {}
            }
        }
        Ok(Headers::Simple)
    }

    fn allocation(&mut self, export: &str) -> Result<Option<u32>> {
        let queries = vec![option::BASE_ALLOCATION.to_owned()];
        let data = Contexts { name: export.to_owned(), queries }.encode();
        let mut found = None;
        let last = self.ask_for(option::SET_META_CONTEXT, &data, |reply| {
            let mut fields = Fields::new(&reply.data);
            if reply.kind == option::REP_META_CONTEXT
                && let Some(number) = fields.u32()
                && fields.rest() == option::BASE_ALLOCATION.as_bytes()
            {
                found = Some(number);
            }
            Ok(())
        })?;
        // Servers without contexts refuse; so do those that do not know the export, again below.
        Ok(found.filter(|_| last.kind == option::REP_ACK))
    }

    /// Size, flags and block sizes of the export; none if the server does not know the option.
    fn go(&mut self, name: &str) -> Result<Option<(u64, ExportFlags, BlockSizes)>> {
        let go = Go { name: name.to_owned(), wanted: vec![option::INFO_BLOCK_SIZE] };
        let (mut export, mut blocks) = (None, BlockSizes::UNKNOWN);
        let last = self.ask_for(option::GO, &go.encode(), |reply| {
            if reply.kind == option::REP_INFO {
                match Info::decode(&reply.data)? {
                    Info::Export { size, flags } => export = Some((size, flags)),
                    Info::BlockSizes(sizes) => blocks = sizes,
                    _ => {}
                }
            }
            Ok(())
        })?;
        match last.kind {
            option::REP_ACK => {
                let missing = Violation::Value { what: "an export without its size", found: 0 };
                let (size, flags) = export.ok_or(missing)?;
                Ok(Some((size, flags, blocks)))
            }
            option::REP_ERR_UNSUP => Ok(None),
            _ => Err(self.why_not(name, &last)?),
        }
    }

    /// The old way to choose an export. A server that does not have it ends the connection.
    fn export_name(
        &mut self,
        name: &str,
        no_zeroes: bool,
    ) -> Result<(u64, ExportFlags, BlockSizes)> {
        self.outgoing.send_bytes(&option::encode(option::EXPORT_NAME, name.as_bytes()))?;
        let chosen = self.array().map(u64::from_be_bytes);
        let size = chosen.map_err(|broken| match broken {
            Broken::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => refused(
                ErrorKind::NotFound,
                format!("the server does not export '{}': name another", name.escape_debug()),
            ),
            other => other,
        })?;
        let flags = ExportFlags::from_bits_retain(u16::from_be_bytes(self.array()?));
        if !no_zeroes {
            self.array::<124>()?;
        }
        Ok((size, flags, BlockSizes::UNKNOWN))
    }

    fn why_not(&mut self, name: &str, reply: &Reply) -> Result<Broken> {
        let shown = name.escape_debug();
        let words = reply.words();
        Ok(match reply.kind {
            option::REP_ERR_UNKNOWN => {
                let has = self.names()?;
                refused(ErrorKind::NotFound, format!("no export '{shown}' there{words}{has}"))
            }
            option::REP_ERR_TLS_REQD => needs_tls(),
            option::REP_ERR_POLICY => refused(
                ErrorKind::PermissionDenied,
                format!(
                    "the server does not give export '{shown}' to this client{words}: see to \
                     whom it gives it, or name another export"
                ),
            ),
            option::REP_ERR_SHUTDOWN => {
                refused(ErrorKind::Io, format!("the server is ending{words}: start it again"))
            }
            kind => refused(
                ErrorKind::Unsupported,
                format!(
                    "the server refuses export '{shown}': {}{words}: see what its log says",
                    refusal(kind)
                ),
            ),
        })
    }

    /// What the server exports, as the end of a message.
    fn names(&mut self) -> Result<String> {
        let mut names = Vec::new();
        let last = self.ask_for(option::LIST, &[], |reply| {
            if reply.kind == option::REP_SERVER
                && let Some(name) = Fields::new(&reply.data).text()
            {
                names.push(format!("'{}'", name.escape_debug()));
            }
            Ok(())
        })?;
        let more = if names.len() > NAMES { " and more" } else { "" };
        names.truncate(NAMES);
        Ok(match last.kind == option::REP_ACK && !names.is_empty() {
            true => format!(": it has {}{more}", names.join(", ")),
            false => ": name one that it has".into(),
        })
    }

    /// Sends an option and gives its last answer.
    fn ask(&mut self, number: u32, data: &[u8]) -> Result<Reply> {
        self.ask_for(number, data, |_| Ok(()))
    }

    fn ask_for(
        &mut self,
        number: u32,
        data: &[u8],
        mut each: impl FnMut(&Reply) -> std::result::Result<(), Violation>,
    ) -> Result<Reply> {
        self.outgoing.send_bytes(&option::encode(number, data))?;
        for _ in 0..MAX_REPLIES {
            let reply = self.reply(number)?;
            if reply.kind == option::REP_ACK || reply.kind & option::REP_ERR != 0 {
                return Ok(reply);
            }
            each(&reply)?;
        }
        Err(Violation::TooMany(MAX_REPLIES).into())
    }

    fn reply(&mut self, number: u32) -> Result<Reply> {
        let ReplyHeader { option, kind, len } = ReplyHeader::decode(&self.array()?)?;
        if option != number {
            let what = "the option that is answered";
            return Err(Violation::Value { what, found: option.into() }.into());
        }
        let mut data = vec![0; usize::try_from(len).unwrap_or_default()];
        self.incoming.fill_by(&mut data, self.deadline)?;
        Ok(Reply { kind, data })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.incoming.fill_by(&mut bytes, self.deadline)?;
        Ok(bytes)
    }
}

/// What a reply that refuses an export means.
fn refusal(kind: u32) -> String {
    let meaning = match kind {
        option::REP_ERR_UNSUP => "it does not know what it was asked for",
        option::REP_ERR_INVALID => "it calls the request invalid",
        option::REP_ERR_PLATFORM => "the system it runs on cannot do this",
        option::REP_ERR_BLOCK_SIZE_REQD => {
            "it wants a client that keeps to its block sizes, and tells none"
        }
        option::REP_ERR_TOO_BIG => "it calls the request too long",
        _ => return format!("it answered with the number {kind:#x}, which NBD does not define"),
    };
    meaning.to_owned()
}

fn old() -> Broken {
    let detail = "the server speaks the old negotiation, which names no exports: start it with \
                  newstyle negotiation (nbdkit and qemu-nbd do so)";
    refused(ErrorKind::Unsupported, detail.into())
}

fn needs_tls() -> Broken {
    let detail = "the server wants TLS: write nbds:// (or nbds+unix://) in the address";
    refused(ErrorKind::PermissionDenied, detail.into())
}
