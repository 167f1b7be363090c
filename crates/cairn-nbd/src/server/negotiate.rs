//! The handshake, seen from the server.
//!
//! A client has a limited time, a limited number of options, and options of limited length. It
//! learns nothing but names, sizes and flags of exports.

use std::io;

use super::options::Export;
use crate::clock::Deadline;
use crate::failure::Broken;
use crate::transport::{Certificates, Incoming, Outgoing, Tls};
use crate::wire::option::{self, Contexts, Go, Header, Info};
use crate::wire::{HandshakeFlags, Headers, INIT_MAGIC, MAX_STRING, Violation};

/// Options that a client may send.
const MAX_OPTIONS: usize = 64;
/// Longest option that is read only to be refused.
const MAX_SKIPPED: u32 = 1 << 20;
/// The server cannot go back to shorter headers.
const REP_ERR_EXT_HEADER_REQD: u32 = option::REP_ERR + 10;
/// The number of `base:allocation` in answers.
pub(super) const ALLOCATION: u32 = 1;

type Result<T> = std::result::Result<T, Broken>;

/// What a client has chosen.
pub(super) struct Chosen {
    pub(super) export: Export,
    pub(super) headers: Headers,
    /// Questions for what is allocated are answered.
    pub(super) allocation: bool,
}

/// A connection during its negotiation.
pub(super) struct Negotiation<'a> {
    incoming: &'a mut Incoming,
    outgoing: &'a mut Outgoing,
    exports: &'a [Export],
    /// Needed until the connection is encrypted.
    certificates: Option<&'a Certificates>,
    deadline: Deadline,
    headers: Headers,
    no_zeroes: bool,
    /// The export that the client has set contexts for, if it may ask for them.
    allocation: Option<String>,
}

impl<'a> Negotiation<'a> {
    pub(super) fn new(
        incoming: &'a mut Incoming,
        outgoing: &'a mut Outgoing,
        exports: &'a [Export],
        certificates: Option<&'a Certificates>,
        deadline: Deadline,
    ) -> Self {
        Self {
            incoming,
            outgoing,
            exports,
            certificates,
            deadline,
            headers: Headers::Simple,
            no_zeroes: false,
            allocation: None,
        }
    }

    /// Agrees on everything; none if the client leaves.
    pub(super) fn agree(&mut self) -> Result<Option<Chosen>> {
        self.greet()?;
        for _ in 0..MAX_OPTIONS {
            let Header { option, len } = Header::decode(&self.array()?)?;
            if len > option::MAX_DATA {
                self.skip(len)?;
                self.reply(option, option::REP_ERR_TOO_BIG, b"this option has too much data")?;
                continue;
            }
            let mut data = vec![0; usize::try_from(len).unwrap_or_default()];
            self.incoming.fill_by(&mut data, self.deadline)?;
            match option {
                option::STARTTLS => self.secure(&data)?,
                option::EXPORT_NAME if self.certificates.is_some() => {
                    // This option has no answer for those who choose wrongly.
                    return Err(Broken::Io(io::ErrorKind::PermissionDenied.into()));
                }
                option::ABORT => {
                    self.reply(option, option::REP_ACK, &[])?;
                    return Ok(None);
                }
                _ if self.certificates.is_some() => {
                    self.reply(option, option::REP_ERR_TLS_REQD, b"use TLS (nbds://)")?;
                }
                option::EXPORT_NAME => return self.export_name(&data).map(Some),
                option::GO | option::INFO => {
                    let chosen = self.go(option, &data)?;
                    if option == option::GO && chosen.is_some() {
                        return Ok(chosen);
                    }
                }
                _ => self.other(option, &data)?,
            }
        }
        Err(Violation::TooMany(MAX_OPTIONS).into())
    }

    fn greet(&mut self) -> Result<()> {
        let flags = HandshakeFlags::FIXED_NEWSTYLE | HandshakeFlags::NO_ZEROES;
        let mut greeting = INIT_MAGIC.to_be_bytes().to_vec();
        greeting.extend(option::MAGIC.to_be_bytes());
        greeting.extend(flags.bits().to_be_bytes());
        self.outgoing.send_bytes(&greeting)?;
        let found = u32::from_be_bytes(self.array()?);
        let known = u16::try_from(found).ok().and_then(HandshakeFlags::from_bits);
        let what = "the flags of a client";
        let chosen = known.ok_or(Violation::Value { what, found: found.into() })?;
        self.no_zeroes = chosen.contains(HandshakeFlags::NO_ZEROES);
        Ok(())
    }

    /// Everything from here on is encrypted, and nothing that was agreed before counts.
    fn secure(&mut self, data: &[u8]) -> Result<()> {
        let option = option::STARTTLS;
        if !data.is_empty() {
            return self.reply(option, option::REP_ERR_INVALID, b"this option has no data");
        }
        let Some(certificates) = self.certificates.take() else {
            return self.reply(option, option::REP_ERR_POLICY, b"no TLS here, or there is already");
        };
        self.reply(option, option::REP_ACK, &[])?;
        let tls = Tls::accept(self.incoming.socket(), certificates, self.deadline)?;
        if !self.incoming.secure(tls.clone()) {
            let what = "the number of bytes in clear behind the agreement on TLS";
            return Err(Violation::Value { what, found: 1 }.into());
        }
        self.outgoing.secure(tls);
        (self.headers, self.allocation) = (Headers::Simple, None);
        Ok(())
    }

    fn other(&mut self, option: u32, data: &[u8]) -> Result<()> {
        match option {
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS
                if !data.is_empty() =>
            {
                self.reply(option, option::REP_ERR_INVALID, b"this option has no data")
            }
            option::LIST => {
                for export in self.exports {
                    let mut data = option::text(&export.name);
                    data.extend(export.description.as_bytes());
                    let reply = option::encode_reply(option, option::REP_SERVER, &data);
                    self.outgoing.send_bytes(&reply)?;
                }
                self.reply(option, option::REP_ACK, &[])
            }
            option::STRUCTURED_REPLY if self.headers == Headers::Extended => {
                let words = b"headers are extended already";
                self.reply(option, REP_ERR_EXT_HEADER_REQD, words)
            }
            option::STRUCTURED_REPLY => {
                self.headers = Headers::Structured;
                self.reply(option, option::REP_ACK, &[])
            }
            option::EXTENDED_HEADERS => {
                self.headers = Headers::Extended;
                self.reply(option, option::REP_ACK, &[])
            }
            option::SET_META_CONTEXT | option::LIST_META_CONTEXT => self.contexts(option, data),
            _ => self.reply(option, option::REP_ERR_UNSUP, b"this option is not known"),
        }
    }

    fn go(&mut self, option: u32, data: &[u8]) -> Result<Option<Chosen>> {
        let Some(go) = Go::decode(data) else {
            self.reply(option, option::REP_ERR_INVALID, b"this option ends elsewhere")?;
            return Ok(None);
        };
        let Some(export) = self.find(&go.name) else {
            self.reply(option, option::REP_ERR_UNKNOWN, b"no export has this name")?;
            return Ok(None);
        };
        let wants = |kind| go.wanted.contains(&kind);
        let flags = export.flags(self.headers);
        let mut all =
            vec![Info::Export { size: export.size(), flags }, Info::BlockSizes(export.blocks())];
        all.extend(wants(option::INFO_NAME).then(|| Info::Name(export.name.clone())));
        let has_description = wants(option::INFO_DESCRIPTION) && !export.description.is_empty();
        all.extend(has_description.then(|| Info::Description(export.description.clone())));
        for info in all {
            self.reply(option, option::REP_INFO, &info.encode())?;
        }
        self.reply(option, option::REP_ACK, &[])?;
        Ok(Some(self.chosen(&go.name, export)))
    }

    fn chosen(&self, name: &str, export: Export) -> Chosen {
        let allocation = self.allocation.as_deref() == Some(name) && export.extents.is_some();
        Chosen { export, headers: self.headers, allocation }
    }

    /// The old way to choose, which has no answer for those who choose wrongly.
    fn export_name(&mut self, data: &[u8]) -> Result<Chosen> {
        let name = std::str::from_utf8(data).unwrap_or("\0");
        let export = self.find(name).filter(|_| self.headers != Headers::Extended);
        let export = export.ok_or_else(|| Broken::Io(io::ErrorKind::NotFound.into()))?;
        let mut answer = export.size().to_be_bytes().to_vec();
        answer.extend(export.flags(self.headers).bits().to_be_bytes());
        if !self.no_zeroes {
            answer.extend([0; 124]);
        }
        self.outgoing.send_bytes(&answer)?;
        Ok(self.chosen(name, export))
    }

    fn contexts(&mut self, option: u32, data: &[u8]) -> Result<()> {
        let sets = option == option::SET_META_CONTEXT;
        if sets {
            self.allocation = None;
        }
        if self.headers == Headers::Simple {
            let words = b"contexts need structured replies";
            return self.reply(option, option::REP_ERR_INVALID, words);
        }
        let Some(Contexts { name, queries }) = Contexts::decode(data) else {
            return self.reply(option, option::REP_ERR_INVALID, b"this option ends elsewhere");
        };
        let Some(export) = self.find(&name) else {
            return self.reply(option, option::REP_ERR_UNKNOWN, b"no export has this name");
        };
        let is_asked =
            |query: &String| query == option::BASE_ALLOCATION || (!sets && query == "base:");
        let asked = queries.iter().any(is_asked) || (!sets && queries.is_empty());
        if asked && export.extents.is_some() {
            let number = if sets { ALLOCATION } else { 0 };
            let mut data = number.to_be_bytes().to_vec();
            data.extend(option::BASE_ALLOCATION.as_bytes());
            self.reply(option, option::REP_META_CONTEXT, &data)?;
            if sets {
                self.allocation = Some(name);
            }
        }
        self.reply(option, option::REP_ACK, &[])
    }

    fn find(&self, name: &str) -> Option<Export> {
        let named = self.exports.iter().find(|export| export.name == name);
        let default = self.exports.first().filter(|_| name.is_empty());
        named.or(default).cloned()
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) -> Result<()> {
        debug_assert!(data.len() <= MAX_STRING + 16);
        Ok(self.outgoing.send_bytes(&option::encode_reply(option, kind, data))?)
    }

    fn skip(&mut self, len: u32) -> Result<()> {
        Violation::length("an option", len.into(), 0..=MAX_SKIPPED.into())?;
        let mut left = usize::try_from(len).unwrap_or_default();
        let mut bytes = [0; 4096];
        while left > 0 {
            let part = left.min(bytes.len());
            self.incoming.fill_by(&mut bytes[..part], self.deadline)?;
            left -= part;
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.incoming.fill_by(&mut bytes, self.deadline)?;
        Ok(bytes)
    }
}
