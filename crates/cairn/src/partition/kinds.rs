//! Names of partition types. Sources: the UEFI specification, the Discoverable Partitions
//! Specification, and the lists of fdisk(8).

use uuid::Uuid;

const GPT: &[(u128, &str)] = &[
    (0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b, "EFI System"),
    (0x21686148_6449_6e6f_744e_656564454649, "BIOS boot"),
    (0x0fc63daf_8483_4772_8e79_3d69d8477de4, "Linux filesystem"),
    (0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f, "Linux swap"),
    (0xe6d6d379_f507_44c2_a23c_238f2a3df928, "Linux LVM"),
    (0xa19d880f_05fc_4d3b_a006_743f0f84911e, "Linux RAID"),
    (0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709, "Linux root (x86-64)"),
    (0xb921b045_1df0_41c3_af44_4c6f280d3fae, "Linux root (ARM64)"),
    (0x69dad710_2ce4_4e3c_b16c_21a1d49abed3, "Linux root (ARM)"),
    (0x44479540_f297_41b2_9af7_d131d5f0458a, "Linux root (x86)"),
    (0x72ec70a6_cf74_40e6_bd49_4bda08e8f224, "Linux root (RISC-V)"),
    (0x8484680c_9521_48c6_9c11_b0720656f69e, "Linux /usr (x86-64)"),
    (0xb0e01050_ee5f_4390_949a_9101b17104e9, "Linux /usr (ARM64)"),
    (0x4d21b016_b534_45c2_a9fb_5c16e091fd2d, "Linux variable data"),
    (0x933ac7e1_2eb4_4f13_b844_0e14e2aef915, "Linux home"),
    (0x3b8f8425_20e0_4f3b_907f_1a25a76f98e8, "Linux server data"),
    (0xbc13c2ff_59e6_4262_a352_b275fd6f7172, "Linux extended boot"),
    (0x8da63339_0007_60c0_c436_083ac8230908, "Linux reserved"),
    (0xca7d7ccb_63ed_4c53_861c_1742536059cc, "LUKS"),
    (0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7, "Microsoft basic data"),
    (0xe3c9e316_0b5c_4db8_817d_f92df00215ae, "Microsoft reserved"),
    (0xde94bba4_06d1_4d40_a16a_bfd50179d6ac, "Windows recovery"),
    (0xfe3a2a5d_4f32_41a7_b725_accc3285a309, "ChromeOS kernel"),
    (0x3cb8e202_3b7e_47dd_8a3c_7ff2a13cfcec, "ChromeOS root"),
];

const MBR: &[(u8, &str)] = &[
    (0x01, "FAT12"),
    (0x04, "FAT16 <32M"),
    (0x06, "FAT16"),
    (0x07, "HPFS/NTFS/exFAT"),
    (0x0b, "W95 FAT32"),
    (0x0c, "W95 FAT32 (LBA)"),
    (0x0e, "W95 FAT16 (LBA)"),
    (0x27, "Hidden NTFS WinRE"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x8e, "Linux LVM"),
    (0xa5, "FreeBSD"),
    (0xa6, "OpenBSD"),
    (0xa9, "NetBSD"),
    (0xda, "Non-FS data"),
    (0xea, "Linux extended boot"),
    (0xef, "EFI System"),
    (0xfd, "Linux RAID"),
];

/// Words for the types of new partitions: the word, the GPT type, the MBR type.
const WORDS: &[(&str, u128, Option<u8>)] = &[
    ("linux", 0x0fc63daf_8483_4772_8e79_3d69d8477de4, Some(0x83)),
    ("root-x86-64", 0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709, Some(0x83)),
    ("root-x86", 0x44479540_f297_41b2_9af7_d131d5f0458a, Some(0x83)),
    ("root-arm64", 0xb921b045_1df0_41c3_af44_4c6f280d3fae, Some(0x83)),
    ("root-arm", 0x69dad710_2ce4_4e3c_b16c_21a1d49abed3, Some(0x83)),
    ("root-riscv64", 0x72ec70a6_cf74_40e6_bd49_4bda08e8f224, Some(0x83)),
    ("usr-x86-64", 0x8484680c_9521_48c6_9c11_b0720656f69e, Some(0x83)),
    ("usr-arm64", 0xb0e01050_ee5f_4390_949a_9101b17104e9, Some(0x83)),
    ("home", 0x933ac7e1_2eb4_4f13_b844_0e14e2aef915, Some(0x83)),
    ("srv", 0x3b8f8425_20e0_4f3b_907f_1a25a76f98e8, Some(0x83)),
    ("var", 0x4d21b016_b534_45c2_a9fb_5c16e091fd2d, Some(0x83)),
    ("swap", 0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f, Some(0x82)),
    ("esp", 0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b, Some(0xef)),
    ("xbootldr", 0xbc13c2ff_59e6_4262_a352_b275fd6f7172, Some(0xea)),
    ("bios", 0x21686148_6449_6e6f_744e_656564454649, None),
    ("fat", 0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7, Some(0x0c)),
];

/// The words for types of new partitions.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    WORDS.iter().map(|(word, ..)| *word)
}

/// The types that a word stands for.
pub(super) fn of_word(word: &str) -> Option<(Uuid, Option<u8>)> {
    let found = WORDS.iter().find(|(known, ..)| *known == word);
    found.map(|(_, gpt, mbr)| (Uuid::from_u128(*gpt), *mbr))
}

/// A GPT type in words, or its GUID if it is unknown.
pub(super) fn gpt(guid: Uuid) -> String {
    let known = GPT.iter().find(|(known, _)| *known == guid.as_u128());
    known.map_or_else(|| guid.to_string(), |(_, name)| (*name).into())
}

/// An MBR type in words, or its number if it is unknown.
pub(super) fn mbr(kind: u8) -> String {
    let known = MBR.iter().find(|(known, _)| *known == kind);
    known.map_or_else(|| format!("type {kind:#04x}"), |(_, name)| (*name).into())
}
