//! The decisions. Each says which events it depends on, and decides on their states alone.
//!
//! What makes them worth a look: a subscription depends on a course *and* on a student. With a stream for each entity one
//! of the two could only be checked afterwards; here one condition covers both.

use std::fmt;

use serde::{Deserialize, Serialize};
use sluicegate::events::{Decision, NewEvent, Query, fold};

/// How many courses a student may take.
pub const MOST_COURSES: u64 = 3;

const COURSE_DEFINED: &str = "CourseDefined";
const CAPACITY_CHANGED: &str = "CapacityChanged";
const STUDENT_SUBSCRIBED: &str = "StudentSubscribed";

/// Why something may not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The course is there already.
    CourseExists,
    /// Nobody defined the course.
    NoSuchCourse,
    /// More students than that have subscribed to it already.
    TooFewSeats {
        /// How many have.
        taken: u32,
    },
    /// The course has no seat left.
    CourseFull {
        /// How many it has.
        seats: u32,
    },
    /// The student takes it already.
    SubscribedAlready,
    /// The student takes as many courses as anyone may.
    TooManyCourses,
}

/// A course is offered.
#[derive(Clone, Debug)]
pub struct DefineCourse {
    /// Which one.
    pub course: String,
    /// How many may subscribe to it.
    pub seats: u32,
}

/// A course gets more seats, or fewer.
#[derive(Clone, Debug)]
pub struct ChangeCapacity {
    /// Which one.
    pub course: String,
    /// How many may subscribe to it from now on.
    pub seats: u32,
}

/// A student subscribes to a course.
#[derive(Clone, Debug)]
pub struct Subscribe {
    /// Who.
    pub student: String,
    /// To which one.
    pub course: String,
}

/// How many seats a course has: the data of its events.
#[derive(Debug, Deserialize, Serialize)]
struct Capacity {
    seats: u32,
}

/// A course as its events tell it.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// None if nobody defined it.
    seats: Option<u32>,
    taken: u32,
}

/// What becomes of a course.
fn course(id: &str) -> fold::ByType<Course> {
    let query = Query::types([COURSE_DEFINED, CAPACITY_CHANGED, STUDENT_SUBSCRIBED]);
    let set = |course: &mut Course, capacity: Capacity| course.seats = Some(capacity.seats);
    fold::by_type(query.tag("course", id), Course::default())
        .on(COURSE_DEFINED, set)
        .on(CAPACITY_CHANGED, set)
        .on_event(STUDENT_SUBSCRIBED, |course, _event| course.taken += 1)
}

impl Decision for DefineCourse {
    type Projections = fold::Exists;
    type Error = Refusal;

    fn projections(&self) -> fold::Exists {
        fold::exists(Query::types([COURSE_DEFINED]).tag("course", &self.course))
    }

    fn decide(&self, exists: bool) -> Result<Vec<NewEvent>, Refusal> {
        match exists {
            true => Err(Refusal::CourseExists),
            false => Ok(vec![course_defined(&self.course, self.seats)]),
        }
    }
}

impl Decision for ChangeCapacity {
    type Projections = fold::ByType<Course>;
    type Error = Refusal;

    fn projections(&self) -> Self::Projections {
        course(&self.course)
    }

    fn decide(&self, course: Course) -> Result<Vec<NewEvent>, Refusal> {
        let seats = course.seats.ok_or(Refusal::NoSuchCourse)?;
        if self.seats < course.taken {
            return Err(Refusal::TooFewSeats { taken: course.taken });
        }
        if self.seats == seats {
            return Ok(Vec::new());
        }
        Ok(vec![capacity_changed(&self.course, self.seats)])
    }
}

impl Decision for Subscribe {
    /// The course, how many courses the student takes, and whether this is one of them: read together, and each by its
    /// own query. The condition is that none of the three has changed.
    type Projections = (fold::ByType<Course>, fold::Count, fold::Exists);
    type Error = Refusal;

    fn projections(&self) -> Self::Projections {
        let subscribed = || Query::types([STUDENT_SUBSCRIBED]).tag("student", &self.student);
        let to_this = subscribed().tag("course", &self.course);
        (course(&self.course), fold::count(subscribed()), fold::exists(to_this))
    }

    fn decide(
        &self,
        (course, takes, takes_it): (Course, u64, bool),
    ) -> Result<Vec<NewEvent>, Refusal> {
        let seats = course.seats.ok_or(Refusal::NoSuchCourse)?;
        if takes_it {
            return Err(Refusal::SubscribedAlready);
        }
        if takes >= MOST_COURSES {
            return Err(Refusal::TooManyCourses);
        }
        if course.taken >= seats {
            return Err(Refusal::CourseFull { seats });
        }
        Ok(vec![student_subscribed(&self.student, &self.course)])
    }
}

/// A course was defined.
#[must_use]
pub fn course_defined(course: &str, seats: u32) -> NewEvent {
    NewEvent::of(COURSE_DEFINED).tag("course", course).json(&Capacity { seats })
}

/// A course has more seats, or fewer.
#[must_use]
pub fn capacity_changed(course: &str, seats: u32) -> NewEvent {
    NewEvent::of(CAPACITY_CHANGED).tag("course", course).json(&Capacity { seats })
}

/// A student has subscribed to a course.
#[must_use]
pub fn student_subscribed(student: &str, course: &str) -> NewEvent {
    NewEvent::of(STUDENT_SUBSCRIBED).tag("course", course).tag("student", student)
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CourseExists => f.write_str("the course is there already"),
            Self::NoSuchCourse => f.write_str("there is no such course"),
            Self::TooFewSeats { taken } => write!(f, "{taken} students take the course already"),
            Self::CourseFull { seats } => write!(f, "all {seats} seats of the course are taken"),
            Self::SubscribedAlready => f.write_str("the student takes the course already"),
            Self::TooManyCourses => write!(f, "the student takes {MOST_COURSES} courses already"),
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use sluicegate::events::given;

    use super::*;

    fn define(course: &str, seats: u32) -> DefineCourse {
        DefineCourse { course: course.to_owned(), seats }
    }

    fn change(course: &str, seats: u32) -> ChangeCapacity {
        ChangeCapacity { course: course.to_owned(), seats }
    }

    fn subscribe(student: &str, course: &str) -> Subscribe {
        Subscribe { student: student.to_owned(), course: course.to_owned() }
    }

    #[test]
    fn a_course_is_defined_once() {
        given([]).when(&define("c1", 10)).then_appends([course_defined("c1", 10)]);
        let defined = given([course_defined("c1", 10)]);
        defined.when(&define("c1", 20)).then_refuses(&Refusal::CourseExists);
        defined.when(&define("c2", 20)).then_appends([course_defined("c2", 20)]);
    }

    #[test]
    fn a_capacity_changes_but_not_below_what_is_taken() {
        given([]).when(&change("c1", 5)).then_refuses(&Refusal::NoSuchCourse);
        let full = given([
            course_defined("c1", 2),
            student_subscribed("s1", "c1"),
            student_subscribed("s2", "c1"),
        ]);
        full.when(&change("c1", 1)).then_refuses(&Refusal::TooFewSeats { taken: 2 });
        full.when(&change("c1", 3)).then_appends([capacity_changed("c1", 3)]);
        full.when(&change("c1", 2)).then_appends_nothing();
    }

    #[test]
    fn a_student_subscribes_to_a_course_that_is_there() {
        given([]).when(&subscribe("s1", "c1")).then_refuses(&Refusal::NoSuchCourse);
        given([course_defined("c2", 5)])
            .when(&subscribe("s1", "c1"))
            .then_refuses(&Refusal::NoSuchCourse);
        given([course_defined("c1", 5)])
            .when(&subscribe("s1", "c1"))
            .then_appends([student_subscribed("s1", "c1")]);
    }

    #[test]
    fn the_last_seat_is_the_last() {
        let one_left = [
            course_defined("c1", 2),
            course_defined("c2", 1),
            student_subscribed("s1", "c1"),
            student_subscribed("s2", "c2"),
        ];
        given(one_left.clone())
            .when(&subscribe("s3", "c1"))
            .then_appends([student_subscribed("s3", "c1")]);
        let full = one_left.into_iter().chain([student_subscribed("s3", "c1")]);
        given(full.clone())
            .when(&subscribe("s4", "c1"))
            .then_refuses(&Refusal::CourseFull { seats: 2 });
        given(full.chain([capacity_changed("c1", 3)]))
            .when(&subscribe("s4", "c1"))
            .then_appends([student_subscribed("s4", "c1")]);
    }

    #[test]
    fn nobody_subscribes_twice() {
        given([course_defined("c1", 5), student_subscribed("s1", "c1")])
            .when(&subscribe("s1", "c1"))
            .then_refuses(&Refusal::SubscribedAlready);
    }

    #[test]
    fn nobody_takes_more_courses_than_anyone_may() {
        let taken = (0..MOST_COURSES).flat_map(|n| {
            let course = format!("c{n}");
            [course_defined(&course, 5), student_subscribed("s1", &course)]
        });
        let given = given(taken.chain([course_defined("last", 5)]));
        given.when(&subscribe("s1", "last")).then_refuses(&Refusal::TooManyCourses);
        given.when(&subscribe("s2", "last")).then_appends([student_subscribed("s2", "last")]);
    }
}
