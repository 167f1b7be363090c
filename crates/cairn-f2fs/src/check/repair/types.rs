//! Types of inodes. They are set before anything else: what an inode holds is read by its type.

use std::collections::BTreeSet;

use cairn_check::Finding;
use cairn_vfs::FileKind;

use super::super::context::Scratch;
use super::super::{kinds, types};
use super::edit::{Edit, ino_of};
use crate::error::Result;

impl Edit<'_> {
    /// Sets the types that contents show. What nothing proves is listed as lost. False if nothing
    /// has changed.
    pub(super) fn mend_types(&mut self, findings: &[Finding]) -> Result<bool> {
        let of = |code| findings.iter().filter(move |found: &&Finding| found.kind.code == code);
        // A new checksum would hide what else is damaged there.
        let damaged: BTreeSet<_> =
            of(kinds::INODE_CHECKSUM.code).filter_map(|found| ino_of(&found.place)).collect();
        let mut changed = false;
        for finding in of(kinds::INODE_TYPE.code).chain(of(kinds::INODE_DOUBT.code)) {
            let Some(ino) = ino_of(&finding.place) else { continue };
            let may = self.scope.allows(finding.kind);
            if !may || (damaged.contains(&ino) && !self.may_lose()) {
                continue;
            }
            let Some((_, image)) = self.node(ino)? else { continue };
            let (now, entry) = (types::stored(&image), types::named(&self.context, ino));
            let scratch = &mut Scratch::default();
            let shown = types::shown(&self.context, scratch, (ino, &image), entry)?;
            // Nothing is lost if what is no directory stays none.
            let other = entry.filter(|kind| *kind != FileKind::Directory).or(now).or(entry);
            let Some(wanted) = shown.or(other) else { continue };
            if now != Some(wanted) {
                self.list_damage(findings, ino);
                self.put_node(ino, types::with(&image, wanted))?;
                changed = true;
            }
            if finding.kind.code == kinds::INODE_TYPE.code {
                self.mended(finding);
            } else {
                let what = "its type, if it was another one";
                self.lost((finding.kind, finding.place.clone()), ino, what);
            }
        }
        Ok(changed)
    }
}
