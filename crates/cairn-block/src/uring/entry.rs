//! The memory of one request: `struct fuse_uring_req_header`, and the payload.

use std::ops::Range;

use cairn_base::memory::{self, NoMemory};
use memmap2::MmapMut;

use super::area::Area;

/// Size of the header of a request, and of the first argument.
pub const IN_OUT: usize = 128;
/// The first argument.
const OPERATION: Range<usize> = IN_OUT..2 * IN_OUT;
/// `struct fuse_uring_ent_in_out`: `commit_id` and `payload_sz`.
const COMMIT_ID: Range<usize> = 264..272;
const PAYLOAD_SIZE: Range<usize> = 272..276;
/// `struct fuse_uring_req_header`, for which a page is given.
const HEADER: usize = 288;
const PAGE: usize = 4096;

/// Memory for one request and its answer.
pub struct Entry {
    /// A page. It does not move.
    header: MmapMut,
    /// Its address stays, too.
    payload: Area,
    pieces: Box<[libc::iovec; Entry::PIECES as usize]>,
    queue: u16,
    commit: u64,
    received: usize,
}

// SAFETY: the addresses in `pieces` point into `header` and `payload`, which move with it; nothing
// else uses them.
unsafe impl Send for Entry {}

impl Entry {
    pub(super) const PIECES: u32 = 2;

    /// An entry for the requests of a queue, with room for this many bytes of names, data and
    /// answer.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn new(queue: u16, payload: usize) -> Result<Self, NoMemory> {
        let mut header =
            memory::fallibly("requests", PAGE as u64, || MmapMut::map_anon(PAGE).ok())?;
        let payload = Area::new(payload)?;
        let piece =
            |start: *mut u8, len: usize| libc::iovec { iov_base: start.cast(), iov_len: len };
        let pieces =
            Box::new([piece(header.as_mut_ptr(), HEADER), piece(payload.address(), payload.len())]);
        Ok(Self { header, payload, pieces, queue, commit: 0, received: 0 })
    }

    /// The queue whose requests it takes.
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// The header of the request.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..IN_OUT]
    }

    /// The first argument, if it has a fixed size.
    #[must_use]
    pub fn operation(&self) -> &[u8] {
        &self.header[OPERATION]
    }

    /// The other arguments.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload[..self.received]
    }

    /// Takes the other arguments away without a copy: the pages of `spare` are used from now on.
    /// Returns them with their length, and an area with no pages, which is as good as `empty`. If
    /// the system refuses it, the arguments are still here, and `spare` and `empty` are gone.
    pub fn exchange(&mut self, spare: Area, empty: Area) -> Option<(Area, usize, Area)> {
        let (taken, empty) = self.payload.exchange(spare, empty)?;
        Some((taken, std::mem::take(&mut self.received), empty))
    }

    /// Puts the answer there. False, and nothing is changed, if there is no room for it.
    pub fn answer<'a>(
        &mut self,
        header: &[u8],
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> bool {
        let Some(place) = self.header[..IN_OUT].get_mut(..header.len()) else { return false };
        place.copy_from_slice(header);
        let mut end = 0;
        for piece in pieces {
            let Some(place) = self.payload.get_mut(end..end + piece.len()) else { return false };
            place.copy_from_slice(piece);
            end += piece.len();
        }
        // An entry is far below 4 GiB.
        self.header[PAYLOAD_SIZE].copy_from_slice(&(end as u32).to_ne_bytes());
        true
    }

    /// The kernel has put a request there.
    pub(super) fn received(&mut self) {
        let word = |range: Range<usize>| &self.header[range];
        self.commit = u64::from_ne_bytes(word(COMMIT_ID).try_into().unwrap_or_default());
        let size = u32::from_ne_bytes(word(PAYLOAD_SIZE).try_into().unwrap_or_default());
        self.received = (size as usize).min(self.payload.len());
    }

    /// `struct fuse_uring_cmd_req`.
    pub(super) fn area(&self, commits: bool) -> [u8; 80] {
        let mut area = [0; 80];
        let commit = if commits { self.commit } else { 0 };
        area[8..16].copy_from_slice(&commit.to_ne_bytes());
        area[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        area
    }

    pub(super) fn address(&self) -> u64 {
        self.pieces.as_ptr() as u64
    }

    /// Never freed.
    pub(super) fn leak(self) {
        std::mem::forget(self);
    }
}
