//! scratch
use std::time::Instant;
use sluicegate_tasks::*;
fn main() {
    let n = 500_000u32;
    for multi in [false, true] {
        let rt = if multi { tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap() } else { tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap() };
        for _ in 0..3 {
        let bare = async move { let t = Instant::now(); for i in 0..n { let r = tokio::spawn(async move { i }).await.unwrap(); assert_eq!(r,i);} t.elapsed() };
        let group = TaskGroup::new("b", 64).unwrap();
        let ours = async move { let cx = Context::new(); let t = Instant::now(); for i in 0..n { let r = group.submit(&cx, move |_cx| async move { i }).await.unwrap().await.unwrap(); assert_eq!(r,i);} t.elapsed() };
        let (b,o) = rt.block_on(async { (tokio::spawn(bare).await.unwrap(), tokio::spawn(ours).await.unwrap()) });
        println!("multi {multi}: bare {:?} ours {:?} ratio {:.2}", b/n, o/n, o.as_secs_f64()/b.as_secs_f64());
        }
    }
    let sem = tokio::sync::Semaphore::new(8);
    let p = Permits::new(8).unwrap();
    for _ in 0..3 {
    let t = Instant::now(); for _ in 0..10_000_000 { let g = sem.try_acquire().unwrap(); std::hint::black_box(&g); drop(g);} let b = t.elapsed();
    let t = Instant::now(); for _ in 0..10_000_000 { let g = p.try_acquire().unwrap(); std::hint::black_box(&g); drop(g);} let o = t.elapsed();
    println!("try_acquire: tokio {:?} ours {:?} ratio {:.2}", b/10_000_000, o/10_000_000, o.as_secs_f64()/b.as_secs_f64());
    }
    let t = Instant::now(); for _ in 0..1_000_000 { std::hint::black_box(Instant::now()); } println!("now {:?}", t.elapsed()/1_000_000);
}
