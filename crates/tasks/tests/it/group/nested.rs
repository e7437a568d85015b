//! Submitting to a group from inside one of its own tasks: an error at once, never a deadlock.

use sluicegate_tasks::{Context, Entry, Refusal, Sluice, TaskGroup};

use crate::probe::ByHand;

fn group(name: &str) -> TaskGroup {
    TaskGroup::new(name, 1).unwrap()
}

/// What becomes of a submit to `group` under `cx`, looked at once: a wait is a deadlock here.
fn offer(group: &TaskGroup, cx: &Context) -> Result<(), Option<Refusal>> {
    let mut offer = ByHand::new(group.submit(cx, |cx| async move { cx.check() }));
    match offer.poll() {
        None => Err(None),
        Some(Ok(task)) => {
            drop(task);
            Ok(())
        }
        Some(Err(refused)) => Err(Some(refused.why)),
    }
}

fn nested(name: &str) -> Result<(), Option<Refusal>> {
    Err(Some(Refusal::Nested { group: name.to_owned() }))
}

#[tokio::test(start_paused = true)]
async fn with_the_tasks_own_context_a_child_of_it_or_a_fresh_one() {
    let group = group("pool");
    let clone = group.clone();
    let offers = group.run(Context::new(), |cx| async move {
        let offers = [&cx, &cx.child(), &Context::new()].map(|cx| offer(&clone, cx));
        let tried = clone.try_submit(&cx, |cx| async move { cx.check() });
        let blocking = clone.submit_blocking(&cx, |cx| cx.check()).await;
        let detached = clone.submit_detached("sweeper", |cx| async move { cx.check() }).await;
        let others = [
            Err(Some(tried.unwrap_err().why)),
            Err(Some(blocking.unwrap_err().why)),
            Err(Some(detached.unwrap_err().why)),
        ];
        (offers, others)
    });
    let (offers, others) = offers.await.unwrap();
    assert!(offers.iter().chain(&others).all(|offer| *offer == nested("pool")), "{offers:?}");
    assert_eq!(group.stats().rejected, [("nested", 6)]);
    assert_eq!(group.stats().gauges.running, 0);
    let why = Refusal::Nested { group: "pool".to_owned() };
    let told = "submitted to \"pool\" from inside one of its own tasks: use a child group";
    assert_eq!(why.to_string(), told);
}

#[tokio::test(start_paused = true)]
async fn also_after_the_task_moved_on_from_an_await() {
    let group = group("pool");
    let clone = group.clone();
    let offers = group.run(Context::new(), |cx| async move {
        cx.until_interrupted(tokio::task::yield_now()).await.unwrap();
        [&cx, &Context::new()].map(|cx| offer(&clone, cx))
    });
    assert!(offers.await.unwrap().iter().all(|offer| *offer == nested("pool")));
}

#[tokio::test(start_paused = true)]
async fn with_the_tasks_context_from_a_bare_spawn() {
    let group = group("pool");
    let clone = group.clone();
    let offers = group.run(Context::new(), |cx| async move {
        tokio::spawn(async move { offer(&clone, &cx) }).await.unwrap()
    });
    assert_eq!(offers.await.unwrap(), nested("pool"));
}

#[tokio::test(start_paused = true)]
async fn from_work_that_blocks_its_thread() {
    let group = group("pool");
    let clone = group.clone();
    let offers = group.submit_blocking(Context::new(), move |cx| {
        [&cx, &Context::new()].map(|cx| offer(&clone, cx))
    });
    let offers = offers.await.unwrap().await.unwrap();
    assert!(offers.iter().all(|offer| *offer == nested("pool")), "{offers:?}");
}

#[tokio::test(start_paused = true)]
async fn through_another_groups_task() {
    let (outer, inner) = (group("outer"), group("inner"));
    let to_outer = outer.clone();
    for fresh in [false, true] {
        let (inner, to_outer) = (inner.clone(), to_outer.clone());
        let offered = outer.run(Context::new(), move |cx| async move {
            let within = inner.run(&cx, move |cx| async move {
                offer(&to_outer, &if fresh { Context::new() } else { cx })
            });
            within.await.unwrap()
        });
        assert_eq!(offered.await.unwrap(), nested("outer"), "fresh: {fresh}");
    }
}

#[tokio::test(start_paused = true)]
async fn from_the_task_of_a_child_made_inside() {
    let group = group("pool");
    for (under_fresh, with_fresh) in [(false, false), (false, true), (true, false), (true, true)] {
        let parent = group.clone();
        let offered = group.run(Context::new(), move |cx| async move {
            let child = parent.child("child").unwrap();
            let within = child
                .run(if under_fresh { Context::new() } else { cx }, move |cx| async move {
                    offer(&parent, &if with_fresh { Context::new() } else { cx })
                });
            within.await.unwrap()
        });
        assert_eq!(offered.await.unwrap(), nested("pool"), "{under_fresh} {with_fresh}");
    }
}

#[tokio::test(start_paused = true)]
async fn from_the_task_of_a_child_made_outside() {
    let parent = group("pool");
    let child = parent.child("child").unwrap();
    for fresh in [false, true] {
        let (parent, itself) = (parent.clone(), child.clone());
        let offered = child.run(Context::new(), move |cx| async move {
            let cx = if fresh { Context::new() } else { cx };
            (offer(&parent, &cx), offer(&itself, &cx))
        });
        let offered = offered.await.unwrap();
        assert_eq!(offered, (nested("pool"), nested("child")), "fresh: {fresh}");
    }
}

#[tokio::test(start_paused = true)]
async fn to_a_child_made_outside_that_shares_the_permits() {
    let parent = group("pool");
    let (child, sibling) = (parent.child("child").unwrap(), parent.child("sibling").unwrap());
    for (from, to) in [(&parent, &child), (&sibling, &child)] {
        let target = to.clone();
        let offered = from.run(Context::new(), |cx| async move {
            (offer(&target, &cx), offer(&target, &Context::new()))
        });
        let offered = offered.await.unwrap();
        assert_eq!(offered, (nested("child"), nested("child")), "from {}", from.name());
    }
}

#[tokio::test(start_paused = true)]
async fn another_groups_task_is_free_to_submit() {
    let (one, other) = (group("one"), group("other"));
    let target = other.clone();
    let through = one.run(Context::new(), |cx| async move {
        target.run(&cx, |cx| async move { cx.check() }).await
    });
    assert_eq!(through.await, Ok(Ok(Ok(()))));
    assert_eq!(offer(&one, &Context::new()), Ok(()), "and nothing is left behind on the thread");
}

/// A child of a child of a child: each level runs in the one that it was made in.
fn levels(
    group: TaskGroup,
    cx: Context,
    depth: u32,
) -> std::pin::Pin<Box<dyn Future<Output = u32> + Send>> {
    Box::pin(async move {
        if depth == 0 {
            return 0;
        }
        let child = group.child("deeper").unwrap();
        let own = child.clone();
        1 + child.run(&cx, move |cx| levels(own, cx, depth - 1)).await.unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn the_check_takes_no_longer_than_there_are_levels() {
    let group = TaskGroup::new("pool", 64).unwrap();
    let own = group.clone();
    // One way more at every level would be more steps than anybody can wait for.
    let depth = group.run(Context::new(), move |cx| levels(own, cx, 60));
    assert_eq!(depth.await, Ok(60));
}

/// Each sluice counts its turns from the start, so two of them have turns of the same number.
#[tokio::test(start_paused = true)]
async fn turns_of_two_sluices_around_a_task_are_told_apart() {
    let [outer, inner] =
        ["outer", "inner"].map(|name| Sluice::<()>::builder(name, 1, 10).build().unwrap());
    let first = outer.turn(&Context::new(), Entry::of("a"), ()).await.unwrap();
    let second = inner.turn(&first.context(), Entry::of("a"), ()).await.unwrap();
    let group = TaskGroup::new("pool", 2).unwrap();
    let (own, again) = (group.clone(), outer.clone());
    let refused = group.run(second.context(), |cx| async move {
        let child = own.child("parts").unwrap();
        let enters = |cx: Context| async move {
            again.enter(&cx, Entry::of("a"), ()).await.unwrap_err().why
        };
        child.run(&cx, enters).await.unwrap()
    });
    assert_eq!(refused.await, Ok(Refusal::Nested { group: "outer".to_owned() }));
}
