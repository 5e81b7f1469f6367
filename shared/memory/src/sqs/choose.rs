//! Decides what SQS leaves open; the owner of a queue injects the decisions.

/// Decides what SQS does not guarantee. Implementations are deterministic, so that runs are
/// reproducible.
pub trait Chooser {
    /// Returns which of `count` candidates (never 0) is delivered next; taken modulo `count`.
    fn choose(&mut self, count: usize) -> usize;

    /// Returns whether a standard queue leaves the message visible, so that it is delivered once
    /// more; never, unless implemented otherwise.
    fn delivers_twice(&mut self) -> bool {
        false
    }
}

/// Delivers the oldest message first and each message once: the best case that SQS allows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oldest;

impl Chooser for Oldest {
    fn choose(&mut self, _count: usize) -> usize {
        0
    }
}

/// Shuffles by a seed (SplitMix64) and delivers a message of a standard queue twice in
/// `twice_per_mille` of 1000 cases.
#[derive(Clone, Copy, Debug)]
pub struct Seeded {
    state: u64,
    twice_per_mille: u16,
}

impl Seeded {
    /// Returns a chooser that is deterministic for `seed` and delivers a message of a standard
    /// queue twice in `twice_per_mille` of 1000 cases.
    #[must_use]
    pub fn new(seed: u64, twice_per_mille: u16) -> Self {
        Self { state: seed, twice_per_mille }
    }

    /// Returns the next pseudo-random number of the generator (SplitMix64).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Chooser for Seeded {
    fn choose(&mut self, count: usize) -> usize {
        // The remainder is below `count`, so it always fits.
        usize::try_from(self.next() % count.max(1) as u64).unwrap_or(0)
    }

    fn delivers_twice(&mut self) -> bool {
        self.next() % 1000 < u64::from(self.twice_per_mille)
    }
}

impl<C: Chooser + ?Sized> Chooser for &mut C {
    fn choose(&mut self, count: usize) -> usize {
        (**self).choose(count)
    }

    fn delivers_twice(&mut self) -> bool {
        (**self).delivers_twice()
    }
}
