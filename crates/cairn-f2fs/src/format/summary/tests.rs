use super::super::compact::{COMPACT_FIRST, COMPACT_REST, CompactSummaries};
use super::*;
use crate::format::checkpoint::tests::layout;
use crate::format::log::Log;
use crate::format::units::BlockAddr;

fn owner(n: usize) -> Summary {
    Summary { nid: Nid(n as u32 + 3), version: n as u8, ofs_in_node: (n % 1018) as u16 }
}

fn nat_journal(count: u32) -> NatJournal {
    let entry = |n| NatEntry { version: n as u8, ino: Nid(n), block_addr: BlockAddr(4096 + n) };
    NatJournal((3..3 + count).map(|n| (Nid(n), entry(n))).collect())
}

fn sit_journal(count: u32) -> SitJournal {
    let mut entry = SitEntry::empty(Log::WarmNode);
    entry.valid_map[3] = 0x81;
    SitJournal((0..count).map(|n| (SegNo(n), entry.clone())).collect())
}

#[test]
fn blocks_survive_the_disk() {
    let mut block = SummaryBlock::empty(true);
    block.entries = (0..ENTRIES).map(owner).collect();
    block.journal = info_journal(0x1234);
    let bytes = block.encode();
    assert_eq!((bytes[4091], &bytes[7..14]), (1, &[4, 0, 0, 0, 1, 1, 0][..]));
    assert_eq!(SummaryBlock::decode(&bytes).unwrap(), block);
    assert_eq!(kbytes_written(&block.journal), 0x1234);
    let mut bad = bytes;
    bad[4091] = 2;
    assert!(SummaryBlock::decode(&bad).is_err());
}

#[test]
fn journals_hold_up_to_their_limits() {
    let layout = layout();
    for count in [0, 1, 38] {
        let journal = nat_journal(count);
        assert_eq!(NatJournal::decode(&journal.encode(), &layout).unwrap(), journal);
    }
    for count in [0, 1, 6] {
        let journal = sit_journal(count);
        assert_eq!(SitJournal::decode(&journal.encode(), &layout).unwrap(), journal);
    }
    let mut nat = nat_journal(38).encode();
    nat[0] = 39;
    assert!(matches!(NatJournal::decode(&nat, &layout), Err(Corrupt::Summary { value: 39, .. })));
    let mut sit = sit_journal(6).encode();
    sit[0] = 7;
    assert!(SitJournal::decode(&sit, &layout).is_err());
}

#[test]
fn journals_with_doubles_or_strangers_are_refused() {
    let layout = layout();
    let mut nat = nat_journal(2);
    nat.0[1].0 = nat.0[0].0;
    assert!(NatJournal::decode(&nat.encode(), &layout).is_err());
    nat.0[1].0 = Nid(layout.max_nid());
    assert!(NatJournal::decode(&nat.encode(), &layout).is_err());
    let mut sit = sit_journal(2);
    sit.0[1].0 = SegNo(0);
    assert!(SitJournal::decode(&sit.encode(), &layout).is_err());
    sit.0[1].0 = SegNo(248);
    assert!(SitJournal::decode(&sit.encode(), &layout).is_err());
}

#[test]
fn the_compact_form_packs_three_logs() {
    assert_eq!((COMPACT_FIRST, COMPACT_REST), (439, 584));
    for counts in [[0, 0, 0], [1, 2, 3], [439, 0, 0], [439, 0, 1], [400, 100, 512], [511, 512, 0]] {
        let total = counts.iter().map(|count| usize::from(*count)).sum();
        let mut numbers = 0..total;
        let entries = counts.map(|count| numbers.by_ref().take(count.into()).map(owner).collect());
        let nat = nat_journal(5).encode();
        let written =
            CompactSummaries { nat_journal: nat, sit_journal: sit_journal(4).encode(), entries };
        let blocks = written.encode();
        assert_eq!(blocks.len(), CompactSummaries::blocks_for(total) * BLOCK_SIZE);
        assert_eq!(CompactSummaries::decode(&blocks, counts).unwrap(), written);
        let short = blocks.len() - BLOCK_SIZE;
        assert!(CompactSummaries::decode(&blocks[..short], counts).is_err());
    }
}
