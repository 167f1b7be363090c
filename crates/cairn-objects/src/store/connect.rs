//! The store at a place.

use std::sync::Arc;

use cairn_block::Result;

use super::{DirectoryStore, Store};
use crate::address::Place;

/// Connects to the store at a place.
///
/// # Errors
/// [`cairn_block::ErrorKind::Unsupported`] if this program was built without that kind of store;
/// [`cairn_block::ErrorKind::PermissionDenied`] if there are no credentials.
pub fn connect(place: &Place) -> Result<Arc<dyn Store>> {
    match place {
        Place::Directory(path) => Ok(Arc::new(DirectoryStore::new(path.clone()))),
        #[cfg(feature = "remote")]
        place => Ok(Arc::new(super::remote::RemoteStore::connect(place)?)),
        #[cfg(not(feature = "remote"))]
        place => {
            let detail = format!(
                "this build has no stores in the network, so {place} cannot be opened: build it \
                 with the feature `remote`"
            );
            Err(cairn_block::Error::new(cairn_block::ErrorKind::Unsupported, "open", detail))
        }
    }
}
