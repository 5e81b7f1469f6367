//! Which seed notices a broken rule. Mutation tests try the seeds of [`KNOWN`] first, since playing
//! all from the first one on takes minutes.

/// The seed that noticed each search lately: the text that names the search, and the seed.
const KNOWN: &str = include_str!("../noticing_seeds.txt");

/// Returns the first seed of `1..=most` that `notices`; tries the one that noticed the search
/// `name` lately before all others. `None` if no seed does. Prints the line for
/// `noticing_seeds.txt` if another seed than the known one notices.
pub fn noticing_seed(name: &str, most: u64, mut notices: impl FnMut(u64) -> bool) -> Option<u64> {
    let known = known_seed(name).filter(|seed| *seed <= most);
    if let Some(seed) = known
        && notices(seed)
    {
        return Some(seed);
    }
    let found = (1..=most).filter(|seed| Some(*seed) != known).find(|seed| notices(*seed))?;
    println!("for noticing_seeds.txt: {name}\t{found}");
    Some(found)
}

/// Returns the seed that noticed a search lately, if one is known.
fn known_seed(name: &str) -> Option<u64> {
    let mut lines = KNOWN.lines().filter_map(|line| line.rsplit_once('\t'));
    lines.find(|(known, _)| *known == name).and_then(|(_, seed)| seed.parse().ok())
}
