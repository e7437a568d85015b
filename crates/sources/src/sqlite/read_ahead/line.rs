//! Lines in which each stands behind the one before, and may leave from anywhere.
//!
//! Whoever stands in a line of a kind has its links in a place of its own, so no step takes longer for more of
//! them. One may stand in a line of each of `KINDS` kinds.

const NOBODY: usize = usize::MAX;

/// All who may stand in lines.
#[derive(Debug)]
pub(super) struct Lines<T, const KINDS: usize> {
    places: Vec<Place<T, KINDS>>,
    /// Places that nobody has.
    free: Vec<usize>,
}

#[derive(Debug)]
struct Place<T, const KINDS: usize> {
    value: T,
    links: [Option<Links>; KINDS],
}

#[derive(Clone, Copy, Debug)]
struct Links {
    before: usize,
    behind: usize,
}

/// A line of a kind.
#[derive(Debug)]
pub(super) struct Line<const KIND: usize> {
    first: usize,
    last: usize,
}

impl<T, const KINDS: usize> Default for Lines<T, KINDS> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<const KIND: usize> Default for Line<KIND> {
    fn default() -> Self {
        Self { first: NOBODY, last: NOBODY }
    }
}

impl<T, const KINDS: usize> Lines<T, KINDS> {
    /// Gives it a place, in no line yet.
    pub(super) fn add(&mut self, value: T) -> usize {
        let place = Place { value, links: [None; KINDS] };
        if let Some(at) = self.free.pop() {
            self.places[at] = place;
            return at;
        }
        self.places.push(place);
        self.places.len() - 1
    }

    /// Its place is free again. It must stand in no line.
    pub(super) fn forget(&mut self, at: usize) {
        self.free.push(at);
        if self.len() == 0 {
            *self = Self::default();
        }
    }

    pub(super) fn get(&self, at: usize) -> &T {
        &self.places[at].value
    }

    pub(super) fn get_mut(&mut self, at: usize) -> &mut T {
        &mut self.places[at].value
    }

    /// Whether it stands in a line of the kind.
    pub(super) fn stands(&self, kind: usize, at: usize) -> bool {
        self.places[at].links[kind].is_some()
    }

    /// How many have a place.
    pub(super) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn links(&mut self, kind: usize, at: usize) -> Option<&mut Links> {
        self.places.get_mut(at)?.links[kind].as_mut()
    }
}

impl<const KIND: usize> Line<KIND> {
    pub(super) const fn first(&self) -> Option<usize> {
        if self.first == NOBODY { None } else { Some(self.first) }
    }

    /// It stands at the end, if it does not stand in such a line already.
    pub(super) fn push<T, const KINDS: usize>(&mut self, lines: &mut Lines<T, KINDS>, at: usize) {
        if lines.stands(KIND, at) {
            return;
        }
        lines.places[at].links[KIND] = Some(Links { before: self.last, behind: NOBODY });
        match lines.links(KIND, self.last) {
            Some(last) => last.behind = at,
            None => self.first = at,
        }
        self.last = at;
    }

    /// It leaves, if it stands in this line.
    pub(super) fn remove<T, const KINDS: usize>(&mut self, lines: &mut Lines<T, KINDS>, at: usize) {
        let Some(Links { before, behind }) = lines.places[at].links[KIND].take() else { return };
        match lines.links(KIND, before) {
            Some(links) => links.behind = behind,
            None => self.first = behind,
        }
        match lines.links(KIND, behind) {
            Some(links) => links.before = before,
            None => self.last = before,
        }
    }

    /// Those who stand in it, the first first.
    pub(super) fn iter<T, const KINDS: usize>(
        &self,
        lines: &Lines<T, KINDS>,
    ) -> impl Iterator<Item = usize> {
        let behind = |at: &usize| {
            let links = lines.places[*at].links[KIND];
            links.map(|links| links.behind).filter(|&behind| behind != NOBODY)
        };
        std::iter::successors(self.first(), behind)
    }
}
