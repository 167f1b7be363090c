//! Quota files that count something else than there is: written anew in their places, with the
//! limits that they have.

use std::collections::BTreeSet;

use cairn_base::units::as_u64;
use cairn_check::{Finding, Severity};

use super::super::{kinds, quota};
use super::edit::{Edit, ino_of};
use crate::error::Result;
use crate::format::inode::InlineFlags;
use crate::format::units::{BLOCK_SIZE, Nid};

impl Edit<'_> {
    /// Writes the quota files that findings name. True if one was written.
    pub(super) fn mend_quota(&mut self, found: &[Finding]) -> Result<bool> {
        let is_quota = |found: &&Finding| {
            [kinds::QUOTA_COUNTS.code, kinds::QUOTA_FILE.code].contains(&found.kind.code)
        };
        let scope = self.scope;
        let found: Vec<&Finding> =
            found.iter().filter(is_quota).filter(|found| scope.allows(found.kind)).collect();
        let wrong: BTreeSet<Nid> = found.iter().filter_map(|found| ino_of(&found.place)).collect();
        let context = self.context.clone();
        let Some(known) = &context.quota else { return Ok(false) };
        let mut written = BTreeSet::new();
        for (kind, ino) in quota::files(&context).filter(|(_, ino)| wrong.contains(ino)) {
            let Some(file) = quota::read(&context, kind, ino) else { continue };
            let file = file.with_usage(&known.counted.usage(kind));
            if !self.write_file(ino, &file.encode(kind))? {
                continue;
            }
            written.insert(ino);
            for finding in found.iter().filter(|found| ino_of(&found.place) == Some(ino)) {
                match finding.kind.severity {
                    Severity::Accounting => self.mended(finding),
                    _ => {
                        let what =
                            format!("limits of a {} that were in its damaged parts", kind.name());
                        self.lost((finding.kind, finding.place.clone()), ino, &what);
                    }
                }
            }
        }
        if !written.is_empty() {
            // The checkpoint says whether quota is right.
            self.has_tables = true;
            self.is_quota_wrong = written != wrong;
        }
        Ok(!written.is_empty())
    }

    /// Writes the contents of a file to its blocks, and to new ones. False if there is no room for
    /// all of them.
    fn write_file(&mut self, ino: Nid, bytes: &[u8]) -> Result<bool> {
        let Some((record, _)) = self.inode(ino)? else { return Ok(false) };
        if record.inline.contains(InlineFlags::DATA) {
            return Ok(false);
        }
        for (number, part) in (0_u64..).zip(bytes.chunks(BLOCK_SIZE)) {
            let mut block = part.to_vec();
            block.resize(BLOCK_SIZE, 0);
            let Some(slot) = self.slot(ino, number)? else { return Ok(false) };
            if self.layout.in_main(slot.addr) {
                self.write(slot.addr.get().into(), block)?;
            } else if !self.put_new(ino, number, block)? {
                return Ok(false);
            }
        }
        self.change(ino, |record| record.size = as_u64(bytes.len()))
    }
}
