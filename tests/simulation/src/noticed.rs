//! Which seed notices a broken rule. Mutation tests try the seeds of [`KNOWN`] first, since playing
//! all from the first one on takes minutes.

/// The seeds that noticed each search lately: the text that names the search, and one seed in each
/// line.
const KNOWN: &str = include_str!("../noticing_seeds.txt");

/// Returns a seed of `1..=most` that `notices`; `None` if none does. Tries those that noticed the
/// search `name` lately first, then all others from 1 on. Prints the line for `noticing_seeds.txt`
/// if none of the known ones notices.
pub fn noticing_seed(name: &str, most: u64, mut notices: impl FnMut(u64) -> bool) -> Option<u64> {
    let known: Vec<u64> = known_seeds(name).filter(|seed| *seed <= most).collect();
    if let Some(seed) = known.iter().copied().find(|seed| notices(*seed)) {
        return Some(seed);
    }
    let found = (1..=most).filter(|seed| !known.contains(seed)).find(|seed| notices(*seed))?;
    println!("for noticing_seeds.txt: {name}\t{found}");
    Some(found)
}

/// Returns the seeds that noticed a search lately.
fn known_seeds(name: &str) -> impl Iterator<Item = u64> {
    let lines = KNOWN.lines().filter_map(|line| line.rsplit_once('\t'));
    lines.filter(move |(known, _)| *known == name).filter_map(|(_, seed)| seed.parse().ok())
}
