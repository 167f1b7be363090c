//! What whiteouts of a layer remove from an [`Assembly`]. It is not lost while the layer is read:
//! hard links of the layer may lead to it.

use super::Assembly;
use crate::path::MemberPath;

impl Assembly {
    /// Begins a layer. True if nothing lies below it.
    pub(crate) fn begin_layer(&mut self) -> bool {
        self.hidden.clear();
        self.drafts.len() == 1
    }

    /// Most inodes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Removes what lower layers have at this path.
    pub(crate) fn whiteout(&mut self, path: &MemberPath) {
        let Some((above, name)) = path.split() else { return };
        let Some(parent) = self.find_components(above) else { return };
        if let Some(removed) = self.entries_mut(parent).and_then(|entries| entries.remove(name)) {
            self.hidden.insert((parent, name.into()), removed);
        }
    }

    /// Removes what lower layers have in this directory.
    pub(crate) fn opaque(&mut self, path: &MemberPath) {
        let Some(at) = self.find(path) else { return };
        let Some(entries) = self.entries_mut(at).map(std::mem::take) else { return };
        self.hidden.extend(entries.into_iter().map(|(name, node)| ((at, name), node)));
    }

    /// The node that lower layers have at a path, if a whiteout of this layer has removed it, too.
    pub(crate) fn find_below(&self, path: &MemberPath) -> Option<usize> {
        path.components().iter().try_fold(0, |at, name| {
            let hidden = || self.hidden.get(&(at, name.clone())).copied();
            self.entry(at, name).or_else(hidden)
        })
    }
}
