//! From the words behind `-O` to feature bits.

use cairn_base::nearest::did_you_mean;
use cairn_check::quota::OwnerKind;

use super::casefold::Encoding;
use super::error::Error;
use super::options::MkfsOptions;
use crate::format::Features;

/// Features of mkfs.f2fs that Cairn does not make, with the reason.
const REFUSED: [(Features, &str); 3] = [
    (Features::COMPRESSION, "Cairn does not compress what it writes"),
    (Features::RO, "a read-only volume could never be filled"),
    (Features::DEVICE_ALIAS, "Cairn makes volumes on one device"),
];
/// Features that can be made.
const POSSIBLE: Features = Features::ENCRYPT
    .union(Features::EXTRA_ATTR)
    .union(Features::PROJECT_QUOTA)
    .union(Features::INODE_CHECKSUM)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::QUOTA_INO)
    .union(Features::INODE_CRTIME)
    .union(Features::LOST_FOUND)
    .union(Features::VERITY)
    .union(Features::SB_CHECKSUM)
    .union(Features::CASEFOLD);

/// What the options choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The superblock's features.
    pub(super) features: Features,
    /// The kinds of owners that have a quota file.
    pub(super) owners: Vec<OwnerKind>,
    /// How names are compared without case, if any are.
    pub(super) encoding: Option<Encoding>,
}

/// The chosen features.
pub(super) fn choose(options: &MkfsOptions) -> Result<Choice, Error> {
    let mut features = words(&options.features)?;
    let mut encoding = options.casefold.as_deref().map(Encoding::parse).transpose()?;
    features.set(Features::BLKZONED, options.zoned);
    features.set(Features::CASEFOLD, features.contains(Features::CASEFOLD) || encoding.is_some());
    if features.contains(Features::CASEFOLD) {
        encoding.get_or_insert(Encoding::UTF8);
    }
    let is_counted = |kind: &OwnerKind| match kind {
        OwnerKind::User | OwnerKind::Group => features.contains(Features::QUOTA_INO),
        OwnerKind::Project => features.contains(Features::PROJECT_QUOTA),
    };
    let owners: Vec<OwnerKind> = OwnerKind::ALL.into_iter().filter(is_counted).collect();
    features.set(Features::QUOTA_INO, !owners.is_empty());
    Ok(Choice { features, owners, encoding })
}

/// The features of words, each of which may hold several names separated by commas; `^` removes
/// one.
fn words(wishes: &[String]) -> Result<Features, Error> {
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
    } else if features.contains(Features::PROJECT_QUOTA) {
        8
    } else {
        4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(wishes: &[&str]) -> Result<Choice, String> {
        let features = wishes.iter().map(|wish| (*wish).to_owned()).collect();
        let options = MkfsOptions { features, ..MkfsOptions::default() };
        choose(&options).map_err(|error| error.to_string())
    }

    fn bits(wishes: &[&str]) -> Result<u32, String> {
        choice(wishes).map(|choice| choice.features.bits())
    }

    #[test]
    fn words_become_bits() {
        assert_eq!(bits(&[]), Ok(0));
        assert_eq!(bits(&["extra_attr,inode_checksum", "lost_found"]), Ok(0x228));
        assert_eq!(bits(&["extra_attr", "lost_found", "^lost_found"]), Ok(0x8));
        assert_eq!(bits(&["encrypt,verity,quota,extra_attr,project_quota"]), Ok(0x499));
    }

    #[test]
    fn quota_of_projects_is_a_feature_of_its_own() {
        let users = [OwnerKind::User, OwnerKind::Group];
        assert_eq!(choice(&["quota"]).unwrap().owners, users);
        let projects = choice(&["extra_attr,project_quota"]).unwrap();
        assert_eq!(
            (projects.features.bits(), &*projects.owners),
            (0x98, &[OwnerKind::Project][..])
        );
    }

    #[test]
    fn casefold_has_an_encoding() {
        let named = choice(&["casefold"]).unwrap();
        assert_eq!((named.features.bits(), named.encoding), (0x1000, Some(Encoding::UTF8)));
        let casefold = Some("utf8:strict".to_owned());
        let options = MkfsOptions { casefold, ..MkfsOptions::default() };
        let asked = choose(&options).unwrap();
        assert_eq!((asked.features.bits(), asked.encoding.unwrap().flags), (0x1000, 1));
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
