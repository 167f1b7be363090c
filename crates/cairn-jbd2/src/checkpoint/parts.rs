//! The parts of which checkpointing consists, to measure what each of them brings.

bitflags::bitflags! {
    /// All of them is how a journal works; without any, a full log is checkpointed as Linux does
    /// it, by the handle that finds it full.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CheckpointParts: u8 {
        /// A handle waits only if the log has no room for it. Without: while less than a quarter of
        /// the log is free.
        const EXACT_ROOM = 1;
        /// Blocks of many transactions are written in order of address, with one flush and one
        /// update of the log tail for all. Without: those of the oldest transaction alone.
        const ACROSS = 1 << 1;
        /// A block that a newer transaction holds, too, is written in its committed version.
        /// Without: that transaction is committed first.
        const SUPERSEDE = 1 << 2;
        /// A commit's flush completes earlier checkpoint writes, and a commit updates the log tail
        /// if that frees a quarter of the log.
        const WITH_COMMITS = 1 << 3;
        /// A leader waits for other callers that share the commit.
        const SHARED_COMMITS = 1 << 4;
    }
}
