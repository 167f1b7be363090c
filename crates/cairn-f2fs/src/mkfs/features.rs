//! From the words behind `-O` to feature bits.

use cairn_base::nearest::did_you_mean;

use super::error::Error;
use crate::format::Features;

/// Features of mkfs.f2fs that Cairn does not make, with the reason.
const REFUSED: [(Features, &str); 8] = [
    (Features::ENCRYPT, "Cairn does not encrypt"),
    (Features::VERITY, "Cairn does not build hash trees"),
    (Features::CASEFOLD, "Cairn does not fold case"),
    (Features::COMPRESSION, "Cairn does not compress what it writes"),
    (Features::PROJECT_QUOTA, "Cairn does not maintain quota files"),
    (Features::QUOTA_INO, "Cairn does not maintain quota files"),
    (Features::RO, "a read-only volume could never be filled"),
    (Features::DEVICE_ALIAS, "Cairn makes volumes on one device"),
];
/// Features that can be made.
const POSSIBLE: Features = Features::EXTRA_ATTR
    .union(Features::INODE_CHECKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::INODE_CRTIME)
    .union(Features::LOST_FOUND)
    .union(Features::SB_CHECKSUM);

/// The chosen features. Each word may hold several names separated by commas; `^` removes one.
pub(super) fn choose(wishes: &[String]) -> Result<Features, Error> {
    let mut features = Features::empty();
    for word in wishes.iter().flat_map(|wish| wish.split(',')).filter(|word| !word.is_empty()) {
        let (name, wanted) = match word.strip_prefix('^') {
            Some(name) => (name, false),
            None => (word, true),
        };
        let feature = known(name)?;
        features.set(feature, wanted);
    }
    let lacking = features & Features::NEED_EXTRA_ATTR;
    if !lacking.is_empty() && !features.contains(Features::EXTRA_ATTR) {
        let names = lacking.names().join(", ");
        return Err(Error::Option(format!(
            "without extra_attr there is no room for {names}: ask for extra_attr,{names}"
        )));
    }
    Ok(features)
}

fn known(name: &str) -> Result<Features, Error> {
    // Both words are in use for one bit.
    let name = if name == "quota_ino" { "quota" } else { name };
    let feature = Features::named(name).unwrap_or_default();
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == feature) {
        return Err(Error::Option(format!("feature {name} cannot be made: {why}")));
    }
    if feature.is_empty() || !POSSIBLE.contains(feature) {
        let possible = POSSIBLE.names();
        let meant = did_you_mean(name, possible.iter().map(String::as_str));
        return Err(Error::Option(format!(
            "feature `{name}` is not known{meant}: there are {}",
            possible.join(", ")
        )));
    }
    Ok(feature)
}

/// Bytes of extra attributes that the features ask for.
pub(super) fn extra_size(features: Features) -> u16 {
    if !features.contains(Features::EXTRA_ATTR) {
        0
    } else if features.contains(Features::INODE_CRTIME) {
        24
    } else if features.contains(Features::INODE_CHECKSUM) {
        12
    } else {
        4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(wishes: &[&str]) -> Result<u32, String> {
        let wishes: Vec<String> = wishes.iter().map(|wish| (*wish).to_owned()).collect();
        choose(&wishes).map(|features| features.bits()).map_err(|error| error.to_string())
    }

    #[test]
    fn words_become_bits() {
        assert_eq!(bits(&[]), Ok(0));
        assert_eq!(bits(&["extra_attr,inode_checksum", "lost_found"]), Ok(0x228));
        assert_eq!(bits(&["extra_attr", "lost_found", "^lost_found"]), Ok(0x8));
    }

    #[test]
    fn refusals_name_the_feature() {
        for (refused, _) in REFUSED {
            let name = &refused.names()[0];
            let text = bits(&[name]).unwrap_err();
            assert!(text.contains(name.as_str()), "{text}");
        }
        assert!(bits(&["inode_crtime"]).unwrap_err().contains("extra_attr"));
        assert!(bits(&["has_journal"]).unwrap_err().contains("has_journal"));
    }
}
