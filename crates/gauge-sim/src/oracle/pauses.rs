//! A subscription that is paused asks for nothing: what was asked for before still comes, and nothing else.

use super::{Absence, Case, Told};

/// A request and its answer are under way for so many ways and turns at most, where nothing goes wrong.
const WAYS: i64 = 3;
const REST_NS: i64 = 20_000_000;
/// Where something does, so much longer: a connection that is lost is noticed and replaced, and what it asked for before the pause is answered.
const TROUBLE_NS: i64 = 500_000_000;

/// Compares.
pub(super) fn pauses(case: &Case<'_>, told: &mut Told) {
    let (scenario, owed) = (case.scenario, case.expects.owed);
    let away_ns = scenario.away.as_ref().map_or(0, Absence::longest_ns);
    let way_ns = scenario.delay_ns + scenario.service_ns + scenario.wake_ns + away_ns;
    let trouble_ns = if case.is_calm { 0 } else { TROUBLE_NS };
    let grace_ns = owed.for_ns + WAYS * way_ns + REST_NS + trouble_ns;
    for (at, name) in scenario.subscriptions.iter().enumerate() {
        for (from_ns, until_ns) in spans(case, at) {
            let late = case
                .truth
                .delivered
                .iter()
                .filter(|((subscription, _), _)| *subscription == at)
                .flat_map(|(_, seen)| seen)
                .filter(|seen| (from_ns + grace_ns..until_ns).contains(&seen.come_ns))
                .count();
            if late > owed.batches {
                told.say(|| {
                    format!(
                        "{name} is paused, and gets {late} batches later than {} ms after that; it was owed {}",
                        grace_ns / 1_000_000,
                        owed.batches
                    )
                });
            }
        }
    }
}

/// From when until when a subscription was paused.
fn spans(case: &Case<'_>, at: usize) -> Vec<(i64, i64)> {
    let mut spans: Vec<(i64, i64)> = Vec::new();
    for (_, at_ns, is_paused) in case.truth.pauses.iter().filter(|(other, ..)| *other == at) {
        match (is_paused, spans.last_mut()) {
            (false, Some(last)) => last.1 = last.1.min(*at_ns),
            (false, None) => {}
            (true, Some(last)) if last.1 == i64::MAX => {}
            (true, _) => spans.push((*at_ns, i64::MAX)),
        }
    }
    spans
}
