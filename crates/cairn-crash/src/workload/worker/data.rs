//! The calls of a worker that change contents and attributes.

use std::collections::BTreeSet;

use cairn_vfs::{AllocateMode, Caller, Error, IoFlags, NewInode, Result, SetAttributes, XattrMode};

use super::{File, Worker};
use crate::transfer;
use crate::workload::expect::XATTR;
use crate::workload::pattern;

fn bytes(number: u64) -> usize {
    usize::try_from(number).expect("files of workloads fit into memory")
}

impl Worker {
    pub(super) fn create(&mut self, id: u16, path: &str) -> Result<()> {
        let (dir, name) = self.place(path);
        let made = self.fs.create(dir, name.as_bytes(), NewInode::Regular, 0o644, &Caller::ROOT)?;
        let names = BTreeSet::from([path.to_owned()]);
        let file = File { ino: made.ino, bytes: Vec::new(), version: 0, xattr: None, names };
        self.files.insert(id, file);
        Ok(())
    }

    pub(super) fn write(&mut self, id: u16, offset: u64, len: u64, flags: IoFlags) -> Result<()> {
        let appends =
            offset == self.files[&id].bytes.len() as u64 && !flags.contains(IoFlags::DIRECT);
        if appends {
            for path in self.mentioning(id) {
                let left = self.current[&path].appended(id, self.tail);
                self.promise(&path, Some(left));
            }
        } else {
            self.changing(id);
        }
        let fs = self.fs.clone();
        let file = self.file(id);
        file.version += 1;
        let data = pattern::fill(id, file.version, offset, len);
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            match transfer::write(&*fs, file.ino, at, &data[done..], flags)? {
                0 => return Err(Error::NoSpace),
                more => done += more,
            }
        }
        let at = bytes(offset);
        let size = file.bytes.len().max(at + data.len());
        file.bytes.resize(size, 0);
        file.bytes[at..at + data.len()].copy_from_slice(&data);
        if flags.contains(IoFlags::DSYNC) {
            self.promise_file(id);
        }
        Ok(())
    }

    pub(super) fn truncate(&mut self, id: u16, size: u64) -> Result<()> {
        self.changing(id);
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.fs.setattr(self.files[&id].ino, &set)?;
        self.file(id).bytes.resize(bytes(size), 0);
        Ok(())
    }

    pub(super) fn attribute(&mut self, id: u16, value: Option<Vec<u8>>) -> Result<()> {
        self.changing(id);
        let ino = self.files[&id].ino;
        match &value {
            Some(value) => self.fs.setxattr(ino, XATTR, value, XattrMode::Set)?,
            None => self.fs.removexattr(ino, XATTR)?,
        }
        self.file(id).xattr = value;
        Ok(())
    }

    pub(super) fn allocate(
        &mut self,
        id: u16,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let size = self.files[&id].bytes.len();
        let shifts = matches!(mode, AllocateMode::InsertRange | AllocateMode::CollapseRange);
        // It would be refused.
        if shifts && offset + len >= size as u64 {
            return Ok(());
        }
        self.changing(id);
        match self.fs.allocate(self.files[&id].ino, mode, offset, len) {
            // Files of ext3 cannot hold preallocated space.
            Err(Error::Unsupported(_)) => return Ok(()),
            other => other?,
        }
        let contents = &mut self.file(id).bytes;
        let (start, end) = (bytes(offset), bytes(offset + len));
        match mode {
            AllocateMode::Extend => contents.resize(size.max(end), 0),
            AllocateMode::KeepSize => {}
            AllocateMode::PunchHole | AllocateMode::ZeroRange { .. } => {
                contents[start.min(size)..end.min(size)].fill(0);
            }
            AllocateMode::InsertRange => drop(contents.splice(start..start, vec![0; end - start])),
            AllocateMode::CollapseRange => drop(contents.drain(start..end)),
        }
        Ok(())
    }
}
