//! Lists, a part at a time: `{"items":[…],"next":cursor|null}`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use super::intake::Query;
use super::problem::Problem;

/// How many items a part has unless told.
pub(crate) const USUAL: usize = 100;
/// How many it has at most.
pub(crate) const MOST: usize = 1_000;

/// A part of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

/// `?limit=`
pub(crate) fn limit(query: &Query) -> Result<usize, Problem> {
    let Some(text) = query.get("limit") else { return Ok(USUAL) };
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| {
        let detail = format!("limit must be a whole number from 1 to {MOST}");
        Problem::parameter("limit", detail)
    })
}

/// A cursor that no list has given out.
pub(crate) fn bad_cursor() -> Problem {
    Problem::parameter("cursor", "cursor must be the `next` of the page before")
}

/// Where a part begins: behind the key that the cursor holds.
fn after(query: &Query) -> Result<Option<String>, Problem> {
    let Some(cursor) = query.get("cursor") else { return Ok(None) };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad_cursor())?;
    String::from_utf8(bytes).map(Some).map_err(|_| bad_cursor())
}

/// The asked-for part of a list in order of its keys. What comes and goes meanwhile is seen or not;
/// all else is seen once.
pub(crate) fn page<T, K, S>(
    query: &Query,
    mut all: Vec<T>,
    key: K,
    show: impl Fn(T) -> S,
) -> Result<Page<S>, Problem>
where
    K: Fn(&T) -> String,
{
    let (limit, after) = (limit(query)?, after(query)?);
    all.sort_by_cached_key(&key);
    if let Some(after) = after {
        let begin = all.partition_point(|item| key(item) <= after);
        all.drain(..begin);
    }
    let mut end = limit.min(all.len());
    // Equal keys stay together: the next page begins behind all of them.
    while end > 0 && end < all.len() && key(&all[end - 1]) == key(&all[end]) {
        end += 1;
    }
    let next = (end < all.len()).then(|| URL_SAFE_NO_PAD.encode(key(&all[end - 1])));
    all.truncate(end);
    Ok(Page { items: all.into_iter().map(show).collect(), next })
}
