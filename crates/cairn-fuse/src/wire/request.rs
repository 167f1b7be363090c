//! A request as it arrived: a header, then arguments and names one after the other.

use cairn_block::uring::Entry;
use cairn_vfs::Bytes;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::abi::InHeader;
use super::buffer::Lending;
use super::payload::Payload;

/// One request. Arguments are taken from its front.
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    rest: &'a [u8],
    /// What follows `rest` when that is used up.
    next: &'a [u8],
    /// The memory that holds the message, if it can be lent.
    memory: Memory<'a>,
}

#[derive(Clone, Copy)]
enum Memory<'a> {
    Kept,
    Buffer(&'a Lending),
    Payload(&'a Payload),
}

impl<'a> Request<'a> {
    /// `None` if the message is not a whole request.
    pub(crate) fn parse(message: &'a [u8]) -> Option<Self> {
        let (header, rest) = InHeader::read_from_prefix(message).ok()?;
        let whole = header.len as usize == message.len();
        whole.then_some(Self { header, rest, next: &[], memory: Memory::Kept })
    }

    /// As [`Request::parse`], for a message whose data [`Request::lend`] may give away.
    pub(crate) fn parse_lendable(buffer: &'a Lending, len: usize) -> Option<Self> {
        let parsed = Self::parse(buffer.message(len))?;
        Some(Self { memory: Memory::Buffer(buffer), ..parsed })
    }

    /// As [`Request::of_parts`], with data that [`Request::lend`] may give away.
    pub(crate) fn of_payload(
        header: &[u8],
        operation: &'a [u8],
        payload: &'a Payload,
    ) -> Option<Self> {
        let parsed = Self::of_parts(header, operation, payload.bytes())?;
        Some(Self { memory: Memory::Payload(payload), ..parsed })
    }

    /// The request in an entry of a ring: its first argument is apart from the others.
    pub(crate) fn of(entry: &'a Entry) -> Option<Self> {
        Self::of_parts(entry.header(), entry.operation(), entry.payload())
    }

    /// As [`Request::of`], from copies of the entry's parts.
    pub(crate) fn of_parts(header: &[u8], operation: &'a [u8], next: &'a [u8]) -> Option<Self> {
        let (header, _) = InHeader::read_from_prefix(header).ok()?;
        let others = size_of::<InHeader>() + next.len();
        let first = (header.len as usize).checked_sub(others)?;
        let rest = operation.get(..first)?;
        let (rest, next) = if rest.is_empty() { (next, rest) } else { (rest, next) };
        Some(Self { header, rest, next, memory: Memory::Kept })
    }

    /// The number of the request with this header; it is in the answer.
    pub(crate) fn unique_of(header: &[u8]) -> u64 {
        InHeader::read_from_prefix(header).map_or(0, |(header, _)| header.unique)
    }

    fn advance(&mut self, rest: &'a [u8]) {
        self.rest = if rest.is_empty() { std::mem::take(&mut self.next) } else { rest };
    }

    /// The next structure.
    pub(crate) fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Errno> {
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Errno::INVAL)?;
        self.advance(rest);
        Ok(value)
    }

    /// The next structure, left where it is.
    pub(crate) fn peek<T: FromBytes + KnownLayout + Immutable>(&self) -> Option<T> {
        T::read_from_prefix(self.rest).ok().map(|(value, _)| value)
    }

    /// The next name, which ends with a NUL.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let (name, rest) = self.rest.split_at(end);
        self.advance(rest.get(1..).unwrap_or_default());
        Ok(name)
    }

    /// `size` bytes that follow the arguments.
    pub(crate) fn bytes(&self, size: u32) -> Result<&'a [u8], Errno> {
        self.rest.get(..size as usize).ok_or(Errno::INVAL)
    }

    /// A part of the message that may be kept, without a copy. `None` if it must be copied.
    pub(crate) fn lend(&self, part: &[u8]) -> Option<Bytes> {
        match self.memory {
            Memory::Kept => None,
            Memory::Buffer(buffer) => buffer.lend(part),
            Memory::Payload(payload) => payload.lend(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::super::abi::{GetxattrIn, opcode};
    use super::*;

    fn message(body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(size_of::<InHeader>() + body.len()).unwrap();
        let header = InHeader { len, opcode: opcode::GETXATTR, ..InHeader::default() };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn arguments_and_names_come_one_after_the_other() {
        let body = [GetxattrIn { size: 7, padding: 0 }.as_bytes(), b"user.a\0", b"rest"].concat();
        let message = message(&body);
        let mut request = Request::parse(&message).unwrap();
        assert_eq!(request.take::<GetxattrIn>().unwrap().size, 7);
        assert_eq!(request.name().unwrap(), b"user.a");
        assert_eq!(request.bytes(4).unwrap(), b"rest");
        assert_eq!(request.bytes(5).unwrap_err(), Errno::INVAL);
    }

    /// As the kernel puts it into an entry of a ring.
    #[test]
    fn the_first_argument_may_be_apart() {
        let body = [GetxattrIn { size: 7, padding: 0 }.as_bytes(), b"user.a\0"].concat();
        let message = message(&body);
        let (header, body) = message.split_at(size_of::<InHeader>());
        let (first, others) = body.split_at(size_of::<GetxattrIn>());
        let first = [first, &[9; 100]].concat();
        let mut request = Request::of_parts(header, &first, others).unwrap();
        assert_eq!(request.peek::<GetxattrIn>().unwrap().size, 7);
        assert_eq!(request.take::<GetxattrIn>().unwrap().size, 7);
        assert_eq!(request.name().unwrap(), b"user.a");
        assert!(Request::of_parts(header, &first, b"").is_some());
        assert!(Request::of_parts(header, &first[..5], others).is_none());
        assert!(Request::of_parts(header, &first, &[0; 99]).is_none());
    }

    #[test]
    fn cut_messages_are_refused() {
        let whole = message(b"no end");
        assert!((0..whole.len()).all(|len| Request::parse(&whole[..len]).is_none()));
        let mut request = Request::parse(&whole).unwrap();
        assert_eq!(request.name().unwrap_err(), Errno::INVAL);
        assert!(request.take::<GetxattrIn>().is_err());
    }
}
