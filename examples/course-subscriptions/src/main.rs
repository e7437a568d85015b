//! Students subscribe to courses, and race.
//!
//! ```text
//! cargo run -p course-subscriptions                            a fresh file, which is removed
//! cargo run -p course-subscriptions -- school.db               that file
//! cargo run -p course-subscriptions -- postgres://HOST/SCHOOL  that database; or DATABASE_URL says so
//! ```

use std::error::Error;

use course_subscriptions::{MOST_COURSES, open, race};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = tempfile::tempdir()?;
    let named = std::env::args().nth(1).or_else(|| std::env::var("DATABASE_URL").ok());
    let place = named.unwrap_or_else(|| folder.path().join("school.db").display().to_string());
    let store = open(&place).await?;
    let outcomes = [
        race::for_seats(&store).await?,
        race::with_oneself(&store).await?,
        race::for_courses(&store).await?,
    ];
    let races = [
        "20 students, a course of 5 seats".to_owned(),
        "a student, 20 times the same course".to_owned(),
        format!("a student who may take {MOST_COURSES}, 20 courses"),
    ];
    for (race, outcome) in races.iter().zip(&outcomes) {
        let why = outcome.refused.first().map(ToString::to_string).unwrap_or_default();
        let (subscribed, refused) = (outcome.subscribed, outcome.refused.len());
        println!("{race}: {subscribed} subscribed, {refused} refused: {why}");
    }
    let stats = store.stats();
    let (appended, conflicts) = (stats.events_appended, stats.append_conflicts);
    println!("{appended} events; {conflicts} decisions were made again, since they held no more");
    assert_eq!(outcomes, race::expected());
    Ok(())
}
