//! What stands behind `?` in an image's name, as a whole.

use std::path::Path;

/// The items of a query.
pub(super) fn items(query: &str) -> impl Iterator<Item = &str> + Clone {
    query.trim_start_matches('?').split('&').filter(|item| !item.is_empty())
}

/// What is said once at most: the name of an item. These exclude each other.
fn subject(item: &str) -> &str {
    match item.split_once('=').map_or(item, |(name, _)| name) {
        "key-fd" => "key-file",
        "export-log" => "discard-log",
        name => name,
    }
}

/// Refuses two items that contradict each other.
///
/// # Errors
/// There are two.
pub(super) fn check(query: &str) -> Result<(), String> {
    for (number, item) in items(query).enumerate() {
        let mut before = items(query).take(number);
        if let Some(other) = before.find(|other| subject(other) == subject(item) && *other != item)
        {
            return Err(format!("'?{other}' and '{item}' contradict each other: give one of them"));
        }
    }
    Ok(())
}

/// What to say of a name whose query is behind the number of a part, `IMAGE#2?io=direct`. `path` is
/// what is before the query.
pub(super) fn misplaced(path: &[u8], query: &str) -> Option<String> {
    let path = str::from_utf8(path).ok()?;
    let (image, number) = path.rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && query.starts_with('?') && !Path::new(path).exists() && Path::new(image).exists())
        .then(|| format!("the part comes last: write '{image}{query}#{number}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_twice_must_be_the_same() {
        for good in ["", "?", "?io=direct", "?io=direct&io=direct", "?log=a&log-size=1&take-over"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "?io=direct&io=buffered",
            "?format=raw&offset=1&format=qcow2",
            "?key-file=a&key-fd=3",
            "?log=a&log=b",
            "?log=a&discard-log&export-log=b",
            "?offset=1&offset=2",
        ] {
            let said = check(bad).expect_err(bad);
            assert!(said.contains("contradict each other: give one"), "{said}");
        }
    }

    #[test]
    fn a_part_before_the_query_is_named_in_its_place() {
        let place = tempfile::tempdir().unwrap();
        let image = place.path().join("disk").to_str().unwrap().to_owned();
        let named = format!("{image}#2");
        assert_eq!(misplaced(named.as_bytes(), "?io=direct"), None, "there is no such image");
        std::fs::write(&image, "").unwrap();
        let said = misplaced(named.as_bytes(), "?io=direct").unwrap();
        assert!(said.ends_with(&format!("write '{image}?io=direct#2'")), "{said}");
        assert_eq!(misplaced(named.as_bytes(), ""), None);
        assert_eq!(misplaced(format!("{image}#x").as_bytes(), "?io=direct"), None);
        std::fs::write(&named, "").unwrap();
        assert_eq!(misplaced(named.as_bytes(), "?io=direct"), None, "a file has this name");
    }
}
