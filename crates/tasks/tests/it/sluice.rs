//! Sluices: values wait inside, a crew pulls what may start, and none is ever lost.

mod memory;

use sluicegate_tasks::{Entry, Passage, Sluice};
use tokio::time::Instant;

use crate::probe::{ByHand, ms};

fn sluice<V: Send + 'static>(concurrency: u32, capacity: u32) -> Sluice<V> {
    Sluice::<V>::builder("sluice", concurrency, capacity).build().unwrap()
}

fn cart() -> Entry {
    Entry::of("alice").key("cart")
}

/// The next, which must be there at once.
fn pull<V>(sluice: &Sluice<V>) -> Passage<V> {
    sluice.try_next().expect("something may start")
}

#[tokio::test(start_paused = true)]
async fn a_key_comes_in_order_and_one_at_a_time() {
    let sluice = sluice(4, 10);
    sluice.admit_all(vec![(cart(), 1), (cart(), 2)]).unwrap();
    sluice.admit(cart(), 3).unwrap();
    sluice.admit(Entry::of("alice").key("other"), 4).unwrap();
    let first = pull(&sluice);
    let other = pull(&sluice);
    assert_eq!((*first.value(), *other.value()), (1, 4));
    assert!(sluice.try_next().is_none());
    assert_eq!(first.finish(), 1);
    assert_eq!(pull(&sluice).finish(), 2);
    assert_eq!(pull(&sluice).finish(), 3);
    assert!(sluice.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn one_puller_is_woken_for_each_item_and_a_dropped_one_passes_it_on() {
    let sluice = sluice(4, 10);
    let mut pullers = [(); 3].map(|()| ByHand::new(sluice.next()));
    assert!(pullers.iter_mut().all(|puller| puller.poll().is_none()));
    sluice.admit(Entry::of("alice"), 1).unwrap();
    assert_eq!(pullers.each_ref().map(ByHand::wakes), [1, 0, 0]);
    let [first, mut second, mut third] = pullers;
    drop(first);
    assert_eq!((second.wakes(), third.wakes()), (1, 0));
    let pulled = second.poll().expect("its turn").expect("open");
    assert!(third.poll().is_none());
    assert_eq!(pulled.finish(), 1);
    assert_eq!(third.wakes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_comes_at_its_time_before_the_rest_of_its_key() {
    let sluice = sluice(1, 2);
    let begun = Instant::now();
    sluice.admit_all(vec![(cart(), 1), (cart(), 2)]).unwrap();
    let id = pull(&sluice).retry_at(Some(begun + ms(250))).unwrap();
    let again = sluice.next().await.unwrap();
    assert_eq!((again.id(), begun.elapsed(), again.since()), (id, ms(250), begun));
    assert_eq!(again.finish(), 1);
    assert_eq!(pull(&sluice).finish(), 2);
}

#[tokio::test(start_paused = true)]
async fn closing_returns_all_that_nobody_pulled_in_order() {
    let sluice = sluice(2, 10);
    sluice.admit_all((0..6).map(|n| (cart(), n)).collect()).unwrap();
    let out = pull(&sluice);
    let mut waits = ByHand::new(sluice.next());
    assert!(waits.poll().is_none());
    let mut emptied = ByHand::new(sluice.emptied());
    assert!(emptied.poll().is_none());
    assert_eq!(sluice.close(), [1, 2, 3, 4, 5]);
    assert_eq!(sluice.close(), Vec::<i32>::new());
    assert!(waits.poll().expect("told").is_none());
    assert!(emptied.poll().is_none());
    assert_eq!(out.retry_at(None), Err(0));
    assert_eq!(emptied.wakes(), 1);
    assert!(emptied.poll().is_some());
}
