// Without subgroups: threads add up by way of workgroup memory, in the same order.
const SUBGROUPS = false;

fn sum_of_four_lanes(c: f32) -> f32 { return c; }
