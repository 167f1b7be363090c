//! Finds files with equal contents, for the feature shared_blocks.
//!
//! Candidates have data in the same blocks. A checksum of their contents finds those that may be
//! equal, and a comparison decides. What lies behind the end of a file in its last block is zeros,
//! so that files of different sizes can share it.

use std::collections::HashMap;
use std::ops::Range;

use cairn_base::checksum::crc32c;
use cairn_vfs::new_tree::{Kind, segments};

use super::error::PopulateResult;
use super::survey::Survey;

/// Bytes of a file that are read at a time.
const PIECE: u64 = 1 << 20;

/// For each file that is equal to an earlier one, the first such file. Reads the files that could
/// be equal.
///
/// # Errors
/// One of them cannot be read.
pub(super) fn find(survey: &Survey) -> PopulateResult<HashMap<u32, u32>> {
    let mut shapes: HashMap<Vec<Range<u64>>, Vec<u32>> = HashMap::new();
    for id in 0..survey.source.count() {
        let Kind::Regular { data, .. } = survey.source.node(id).kind else { continue };
        if survey.nodes[id as usize].blocks > 0 {
            let shape = segments(data, survey.settings.block_size as u64).collect();
            shapes.entry(shape).or_default().push(id);
        }
    }
    let mut same = HashMap::new();
    for ids in shapes.into_values().filter(|ids| ids.len() > 1) {
        // The first files of each contents, by checksum.
        let mut firsts: HashMap<u32, Vec<u32>> = HashMap::new();
        for id in ids {
            let firsts = firsts.entry(checksum(survey, id)?).or_default();
            match equal(survey, firsts, id)? {
                Some(first) => drop(same.insert(id, first)),
                None => firsts.push(id),
            }
        }
    }
    Ok(same)
}

/// The one of these files that is equal to another one.
fn equal(survey: &Survey, firsts: &[u32], id: u32) -> PopulateResult<Option<u32>> {
    for first in firsts {
        if are_equal(survey, *first, id)? {
            return Ok(Some(*first));
        }
    }
    Ok(None)
}

/// Calls `visit` with the contents of a file's blocks, piece by piece, until it returns false.
fn pieces(
    survey: &Survey,
    id: u32,
    mut visit: impl FnMut(u64, &[u8]) -> PopulateResult<bool>,
) -> PopulateResult<()> {
    let block_size = survey.settings.block_size as u64;
    let (mut skip, blocks) = (0, u64::from(survey.nodes[id as usize].blocks));
    let mut buffer = Vec::new();
    while skip < blocks {
        let count = (blocks - skip).min(PIECE / block_size);
        buffer.resize((count * block_size) as usize, 0);
        survey.data(id, skip, &mut buffer)?;
        if !visit(skip, &buffer)? {
            return Ok(());
        }
        skip += count;
    }
    Ok(())
}

fn checksum(survey: &Survey, id: u32) -> PopulateResult<u32> {
    let mut sum = !0;
    pieces(survey, id, |_, piece| {
        sum = crc32c(sum, piece);
        Ok(true)
    })?;
    Ok(sum)
}

fn are_equal(survey: &Survey, one: u32, other: u32) -> PopulateResult<bool> {
    let mut equal = true;
    let mut buffer = Vec::new();
    pieces(survey, one, |skip, piece| {
        buffer.resize(piece.len(), 0);
        survey.data(other, skip, &mut buffer)?;
        equal = *piece == *buffer;
        Ok(equal)
    })?;
    Ok(equal)
}
