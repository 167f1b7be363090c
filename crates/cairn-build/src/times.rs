//! Times that a volume cannot store.

use cairn_base::names::Escaped;
use cairn_vfs::Timestamp;

use crate::node::{Metadata, NodeId};
use crate::tree::Tree;

/// Sets all times of a tree to the nearest ones that a volume can store, so that the tree is what
/// is read from the volume later. A warning names the first file for which that is another second.
pub fn settle_times(tree: &mut Tree, storable: &dyn Fn(Timestamp) -> Timestamp) {
    let (mut first, mut others) = (None, 0_u64);
    for (id, node) in (0..).map(NodeId).zip(tree.nodes_mut()) {
        let Metadata { mtime, atime, ctime, .. } = &mut node.metadata;
        let mut changed = None;
        for time in [mtime, atime, ctime] {
            let asked = std::mem::replace(time, storable(*time));
            if asked.seconds != time.seconds {
                changed = changed.or(Some((id, asked.seconds, time.seconds)));
            }
        }
        match first {
            None => first = changed,
            Some(_) => others += u64::from(changed.is_some()),
        }
    }
    let Some((id, asked, nearest)) = first else { return };
    let path = tree.path(id).escaped();
    let too = match others {
        0 => String::new(),
        1 => ", and so it is for one more file".into(),
        others => format!(", and so it is for {others} more files"),
    };
    tracing::warn!(
        "/{path}: its time @{asked} becomes @{nearest}, the nearest that the volume stores{too}: \
         give all files another time if that matters"
    );
}
