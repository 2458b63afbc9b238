"""Mutations of who may do what: the fence, holds, grants, process-bound types, and the input of each turn."""

from __future__ import annotations

from tests.simulation.mutation import CALL, COMMIT, EVENTS, EVERY, FAIL, FENCED, OWN, Mutation

_OWNER = "if field(own, 'tok') == tok then return not held and 'owner' end"
_NOT_MINE = "if redis.call('HGET', KEYS[1], 'tok') ~= ARGV[1] then return 0 end\n"

FENCE: dict[str, Mutation] = {
    "no-fence": Mutation(
        EVERY, _OWNER, "if true then return 'owner' end", COMMIT + "test_a_refused_commit_changes_nothing"
    ),
    "fence-by-epoch": Mutation(
        EVERY,
        "if field(own, 'tok') == tok",
        "if string.match(field(own, 'tok') or '', '^%d+') == string.match(tok, '^%d+')",
        OWN + "test_the_number_of_a_grant_alone_opens_nothing",
    ),
    "begin-no-fence": Mutation(
        "begin", "if not right then return -1 end", "", CALL + "test_a_zombie_does_not_start_a_turn"
    ),
    "call-no-fence": Mutation(
        "call",
        "if not standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return refuse({'FENCED'}) end",
        "",
        CALL + "test_no_call_leaves_a_zombie_or_a_turn_whose_input_is_gone",
    ),
    "commit-no-fence": Mutation("commit", FENCED, "", COMMIT + "test_a_refused_commit_changes_nothing"),
    "fail-no-fence": Mutation("fail", FENCED, "", FAIL + "test_a_refused_failure_changes_nothing"),
    "fanout-no-fence": Mutation(
        "fanout",
        "if not standing(KEYS[1], KEYS[2], ARGV[1], '') then return refuse({'FENCED'}) end",
        "",
        EVENTS + "test_a_refused_fan_out_changes_nothing",
    ),
    "owner-ignores-holds": Mutation(
        EVERY,
        "return not held and 'owner' end",
        "return 'owner' end",
        OWN + "test_a_held_agent_is_closed_to_the_new_owner_and_open_to_the_old_one",
    ),
    "any-hold-is-mine": Mutation(
        EVERY,
        "return held and string.match(held, '^%d+|([^|]*)') == tok and 'hold'",
        "return held and 'hold'",
        OWN + "test_a_held_agent_is_closed_to_the_new_owner_and_open_to_the_old_one",
    ),
}

INPUT: dict[str, Mutation] = {
    "begin-no-input": Mutation(
        "begin", "if not input then return 0 end", "", CALL + "test_a_turn_without_input_does_not_start"
    ),
    "call-no-input": Mutation("call", "if not field(KEYS[4], ARGV[3]) then return refuse({'GONE'}) end", ""),
    "commit-no-input": Mutation(
        "commit", "if not entry(KEYS[3], ARGV[3], turn) then return refuse({'DUP', v}) end", ""
    ),
    "fail-no-input": Mutation(
        "fail",
        "if not input then return refuse({'DUP'}) end",
        "input = input or {}",
        FAIL + "test_a_repeated_failure_changes_nothing",
    ),
    "input-by-id-alone": Mutation(
        EVERY,
        "return fields[i + 1] == turn and fields or nil",
        "return fields",
        COMMIT + "test_a_refused_commit_changes_nothing",
    ),
    "commit-keeps-input": Mutation("commit", "redis.call('XDEL', KEYS[3], ARGV[3])", ""),
    "fail-keeps-input": Mutation("fail", "redis.call('XDEL', KEYS[3], ARGV[3])", ""),
    "fanout-overfull": Mutation(
        "fanout",
        "if cap > 0 and redis.call('XLEN', inbox) >= cap then return {'BUSY', inbox} end",
        "",
        EVENTS + "test_an_event_for_a_full_inbox_waits_for_all_its_recipients",
    ),
    "fanout-overtakes": Mutation(
        "fanout",
        "if ARGV[7] ~= '' and redis.call('XRANGE', KEYS[3], ARGV[7], ARGV[7])[1] then return {'BUSY', KEYS[3]} end",
        "",
        EVENTS + "test_an_event_does_not_overtake_the_one_before_it",
    ),
    "fanout-no-event": Mutation(
        "fanout",
        "if not event then return {'GONE'} end\nif redis.sha1hex(table.concat(event[2], '\\0')) ~= ARGV[3] "
        "then return {'GONE'} end",
        "event = event or {'', {}}",
    ),
    "fanout-any-event": Mutation(
        "fanout",
        "if redis.sha1hex(table.concat(event[2], '\\0')) ~= ARGV[3] then return {'GONE'} end",
        "",
        EVENTS + "test_a_refused_fan_out_changes_nothing",
    ),
    "fanout-keeps-event": Mutation("fanout", "redis.call('XDEL', KEYS[3], ARGV[2])", ""),
    "send-no-marker": Mutation("send", "if not id then\n", "if true then\n"),
}

OWNERSHIP: dict[str, Mutation] = {
    "acquire-living-lease": Mutation(
        "acquire",
        "if owner ~= '' and ends > now then return {0, owner, ends - now} end",
        "",
        OWN + "test_a_partition_with_a_living_lease_is_refused",
    ),
    "acquire-same-epoch": Mutation(
        "acquire",
        "epoch, previous = epoch + 1, token or ''",
        "previous = token or ''",
        OWN + "test_an_expired_lease_is_granted_anew_with_a_new_token",
    ),
    "acquire-no-nonce": Mutation(
        "acquire",
        "local suffix = ':' .. ARGV[1] .. ':' .. ARGV[2]",
        "local suffix = ':'",
        OWN + "test_a_token_is_never_given_twice_although_the_server_forgets_the_last_grant",
    ),
    "acquire-forgets-grant": Mutation(
        "acquire",
        "if owner ~= ARGV[1] or token ~= epoch .. suffix then",
        "if true then",
        OWN + "test_the_same_request_repeated_gets_the_same_grant",
    ),
    "acquire-no-holds": Mutation(
        "acquire",
        "for i = 1, #held do grant[4 + i] = held[i] end",
        "",
        OWN + "test_a_release_leaves_holds_that_the_next_owner_is_told_of",
    ),
    "renew-others": Mutation("renew", _NOT_MINE, "", OWN + "test_an_expired_lease_is_granted_anew_with_a_new_token"),
    "release-others": Mutation("release", _NOT_MINE, "", OWN + "test_a_repeated_release_changes_nothing"),
    "gone-others": Mutation(
        "gone",
        "if owner_of(KEYS[1]) ~= ARGV[1] then return 0 end",
        "",
        OWN + "test_the_lease_of_a_worker_that_has_died_is_ended_and_of_no_other",
    ),
    "release-keeps-token": Mutation(
        "release", ", 'tok', 'released:' .. ARGV[1])", ")", OWN + "test_a_repeated_release_changes_nothing"
    ),
    "break-hold-early": Mutation(
        "break_hold",
        "if ARGV[3] ~= '1' and tonumber(string.match(held, '^(%d+)|')) > now_ms(ARGV[4]) then return 0 end",
        "",
        OWN + "test_a_hold_is_broken_when_it_is_over_and_only_by_the_owner",
    ),
    "break-hold-others": Mutation(
        "break_hold",
        "if redis.call('HGET', KEYS[1], 'tok') ~= ARGV[1] then return -1 end",
        "",
        OWN + "test_a_hold_is_broken_when_it_is_over_and_only_by_the_owner",
    ),
    "claim-held-type": Mutation(
        "claim_type",
        "if beat and tonumber(beat) > now_ms(ARGV[5]) - tonumber(ARGV[4]) then return {0, holder} end",
        "",
        EVENTS + "test_a_process_bound_type_has_one_holder",
    ),
    "register-not-counted": Mutation(
        "register",
        "if changed == 1 then redis.call('HSET', KEYS[1], 'v', version + 1) end",
        "",
        EVENTS + "test_the_registry_counts_its_changes",
    ),
}
