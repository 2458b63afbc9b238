"""Broken scripts: each mutation takes one check out of a script, or one effect, or turns it around.

A mutation is a text to find and a text to put in its place; one that is not found any more is an error, so that the
list keeps up with the scripts. Either the simulation notices it, or, where another check or a rule of the worker makes
up for it, the test that it names.
"""

from __future__ import annotations

from typing import NamedTuple

from stagebell.runtime.redis.lua_files import SCRIPTS

EVERY = "*"


class Mutation(NamedTuple):
    """In `script` (EVERY: wherever it is found) `old` is replaced by `new`.

    `seen_by` is the test that notices it where the simulation cannot, below tests/runtime/redis.
    """

    script: str
    old: str
    new: str
    seen_by: str = ""


_COMMIT, _CALL, _FAIL, _OWN = (f"test_scripts_{name}.py::" for name in ("commit", "call", "fail", "ownership"))
_EVENTS, _SEND = "test_scripts_events.py::", "test_scripts_send.py::"
_FENCED = "if not right then return refuse({'FENCED'}) end"
_OWNER = "if field(own, 'tok') == tok then return not held and 'owner' end"
_NOT_MINE = "if redis.call('HGET', KEYS[1], 'tok') ~= ARGV[1] then return 0 end\n"

_FENCE = {
    "no-fence": Mutation(
        EVERY, _OWNER, "if true then return 'owner' end", _COMMIT + "test_a_refused_commit_changes_nothing"
    ),
    "fence-by-epoch": Mutation(
        EVERY,
        "if field(own, 'tok') == tok",
        "if string.match(field(own, 'tok') or '', '^%d+') == string.match(tok, '^%d+')",
        _OWN + "test_the_number_of_a_grant_alone_opens_nothing",
    ),
    "begin-no-fence": Mutation(
        "begin", "if not right then return -1 end", "", _CALL + "test_a_zombie_does_not_start_a_turn"
    ),
    "call-no-fence": Mutation(
        "call",
        "if not standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return refuse({'FENCED'}) end",
        "",
        _CALL + "test_no_call_leaves_a_zombie_or_a_turn_whose_input_is_gone",
    ),
    "commit-no-fence": Mutation("commit", _FENCED, "", _COMMIT + "test_a_refused_commit_changes_nothing"),
    "fail-no-fence": Mutation("fail", _FENCED, "", _FAIL + "test_a_refused_failure_changes_nothing"),
    "fanout-no-fence": Mutation(
        "fanout",
        "if not standing(KEYS[1], KEYS[2], ARGV[1], '') then return refuse({'FENCED'}) end",
        "",
        _EVENTS + "test_a_refused_fan_out_changes_nothing",
    ),
    "owner-ignores-holds": Mutation(
        EVERY,
        "return not held and 'owner' end",
        "return 'owner' end",
        _OWN + "test_a_held_agent_is_closed_to_the_new_owner_and_open_to_the_old_one",
    ),
    "any-hold-is-mine": Mutation(
        EVERY,
        "return held and string.match(held, '^%d+|([^|]*)') == tok and 'hold'",
        "return held and 'hold'",
        _OWN + "test_a_held_agent_is_closed_to_the_new_owner_and_open_to_the_old_one",
    ),
}

_INPUT = {
    "begin-no-input": Mutation(
        "begin", "if not input then return 0 end", "", _CALL + "test_a_turn_without_input_does_not_start"
    ),
    "call-no-input": Mutation("call", "if not field(KEYS[4], ARGV[3]) then return refuse({'GONE'}) end", ""),
    "commit-no-input": Mutation(
        "commit", "if not entry(KEYS[3], ARGV[3], turn) then return refuse({'DUP', v}) end", ""
    ),
    "fail-no-input": Mutation(
        "fail",
        "if not input then return refuse({'DUP'}) end",
        "input = input or {}",
        _FAIL + "test_a_repeated_failure_changes_nothing",
    ),
    "input-by-id-alone": Mutation(
        EVERY,
        "return fields[i + 1] == turn and fields or nil",
        "return fields",
        _COMMIT + "test_a_refused_commit_changes_nothing",
    ),
    "commit-keeps-input": Mutation("commit", "redis.call('XDEL', KEYS[3], ARGV[3])", ""),
    "fail-keeps-input": Mutation("fail", "redis.call('XDEL', KEYS[3], ARGV[3])", ""),
    "fanout-overfull": Mutation(
        "fanout",
        "if cap > 0 and redis.call('XLEN', inbox) >= cap then return {'BUSY', inbox} end",
        "",
        _EVENTS + "test_an_event_for_a_full_inbox_waits_for_all_its_recipients",
    ),
    "fanout-overtakes": Mutation(
        "fanout",
        "if ARGV[7] ~= '' and redis.call('XRANGE', KEYS[3], ARGV[7], ARGV[7])[1] then return {'BUSY', KEYS[3]} end",
        "",
        _EVENTS + "test_an_event_does_not_overtake_the_one_before_it",
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
        _EVENTS + "test_a_refused_fan_out_changes_nothing",
    ),
    "fanout-keeps-event": Mutation("fanout", "redis.call('XDEL', KEYS[3], ARGV[2])", ""),
    "send-no-marker": Mutation("send", "if not id then\n", "if true then\n"),
}

_PROGRESS = {
    "commit-no-version": Mutation(
        "commit", "if mode ~= 'plain' and ARGV[6] ~= '' and v ~= ARGV[6] then return refuse({'STALE', v}) end", ""
    ),
    "commit-no-replies": Mutation("commit", "(kept and count(KEYS[6], '#r') or 0) < tonumber(ARGV[14])", "false"),
    "commit-no-savepoints": Mutation(
        "commit",
        "own < tonumber(ARGV[15])",
        "false",
        _COMMIT + "test_a_refused_commit_changes_nothing",
    ),
    "commit-unseen": Mutation(
        "commit",
        "if own > 0 and ARGV[15] == '-1' then return refuse({'UNSEEN', v}) end",
        "",
        _COMMIT + "test_a_turn_that_has_not_asked_is_refused_when_there_are_savepoints",
    ),
    "commit-no-parent-savepoints": Mutation(
        "commit", "parent < tonumber(ARGV[16])", "false", _COMMIT + "test_a_refused_commit_changes_nothing"
    ),
    "call-no-replies": Mutation(
        "call", "r < tonumber(ARGV[5]) or ", "", _CALL + "test_a_store_behind_the_memory_of_the_turn_is_noticed"
    ),
    "call-no-savepoints": Mutation(
        "call", " or n < tonumber(ARGV[6])", "", _CALL + "test_a_store_behind_the_memory_of_the_turn_is_noticed"
    ),
    "fail-no-savepoints": Mutation(
        "fail", "count(KEYS[7], '#n') < tonumber(ARGV[12])", "false", _FAIL + "test_a_refused_failure_changes_nothing"
    ),
    "fail-no-parent-savepoints": Mutation(
        "fail", "parent < tonumber(ARGV[13])", "false", _FAIL + "test_a_refused_failure_changes_nothing"
    ),
    "replies-not-counted": Mutation(
        EVERY,
        "'#r', replies + 1)",
        "'#r', replies)",
        _CALL + "test_a_reply_is_kept_in_the_journal_and_rings_the_caller",
    ),
    "versions-not-counted": Mutation("commit", "v = tostring(tonumber(v) + 1)", ""),
    "attempts-not-counted": Mutation("begin", "redis.call('HSET', KEYS[3]", "redis.call('HGET', KEYS[3]"),
    "attempt-not-ended": Mutation("commit", "redis.call('HDEL', KEYS[5], turn)", ""),
    "attempt-not-ended-by-failure": Mutation("fail", "redis.pcall('HDEL', KEYS[5], turn)", ""),
}

_JOINT = {
    "commit-overlooks-journals": Mutation("commit", "redis.call('EXISTS', KEYS[6], KEYS[7]) > 0", "false"),
    "one-spoils-the-next": Mutation(
        EVERY, "  bad = false\n", "", "test_joint.py::test_a_spoilt_key_is_named_to_the_one_whose_it_is"
    ),
    "an-error-ends-all": Mutation(
        EVERY,
        "pcall(one, ",
        "true, one(",
        "test_joint.py::test_an_error_in_one_is_the_outcome_of_that_one",
    ),
}

_REGISTRY = {
    f"{script}-no-registry": Mutation(
        script, f"if version ~= ARGV[{n}] then return refuse({{'STALE_REGISTRY', version}}) end", "", seen_by
    )
    for script, n, seen_by in (
        ("send", 1, _SEND + "test_recipients_found_in_an_older_registry_are_refused"),
        ("commit", 17, ""),
        ("fanout", 5, _EVENTS + "test_a_refused_fan_out_changes_nothing"),
        ("call", 8, _CALL + "test_a_callee_found_in_an_older_registry_is_refused"),
    )
}

_JOURNAL = {
    "call-sent-twice": Mutation("call", "if state == 'S' or state == 'R' then", "if state == 'R' then"),
    "call-answered-sent-again": Mutation("call", "if state == 'S' or state == 'R' then", "if state == 'S' then"),
    "call-not-noted": Mutation(
        "call", "redis.call('HSET', journal, k, 'S' .. ARGV[7] .. id .. ' ' .. ARGV[11] .. ' ' .. ARGV[10])", ""
    ),
    "call-no-digest": Mutation(
        "call",
        "if digest ~= ARGV[7] then return refuse({'CHANGED', digest}) end",
        "",
        _CALL + "test_another_call_in_the_same_place_is_noticed",
    ),
    "reply-not-noted": Mutation(EVERY, "redis.call('HSET', key, k, 'R' ..", "redis.call('HGET', key, k, 'R' .."),
    "answered-twice": Mutation(
        EVERY,
        "  if state == 'S' then\n    redis.call('HSET', key, k",
        "  if true then\n    redis.call('HSET', key, k",
        _COMMIT + "test_a_call_has_one_outcome",
    ),
    "reply-to-nobody": Mutation(
        EVERY,
        "if not open then return end",
        "open = open or 'S12345678'",
    ),
    "journal-left": Mutation(EVERY, "redis.call('DEL', journal, savepoints)", "redis.call('DEL', savepoints)"),
    "savepoints-left": Mutation(EVERY, "redis.call('DEL', journal, savepoints)", "redis.call('DEL', journal)"),
    "retry-counts-twice": Mutation(
        "retry", "if last == ARGV[5] then return {'OK', failures} end", "", "test_scripts_retry.py"
    ),
    "retry-keeps-failure": Mutation(
        "retry", "for _, k in ipairs(answered) do redis.call('HDEL', KEYS[5], k) end", "", "test_scripts_retry.py"
    ),
    "retry-keeps-places": Mutation(
        "retry", "if step then stepped_back(KEYS[6], step) end", "", "test_scripts_retry.py"
    ),
    "any-request-answered": Mutation(EVERY, "return not other and open,", "return open,", "test_scripts_retry.py"),
    "retry-no-fence": Mutation("retry", _FENCED, "", "test_scripts_retry.py"),
    "retry-no-input": Mutation(
        "retry", "if not entry(KEYS[3], ARGV[3], ARGV[4]) then return refuse({'DUP'}) end", "", "test_scripts_retry.py"
    ),
    "withdraw-keeps-journal": Mutation(
        "withdraw",
        "redis.call('DEL', KEYS[4], KEYS[5])",
        "",
        _CALL + "test_a_callee_cannot_answer_a_withdrawn_call",
    ),
    "withdraw-answered": Mutation(
        "withdraw",
        "if not input or (journalled and string.sub(call, 1, 1) ~= 'S') then return 0 end",
        "",
        _CALL + "test_an_answered_call_is_not_withdrawn",
    ),
}

_RECORD = "test_scripts_record.py::"
_TOLD = _RECORD + "test_a_store_behind_the_memory_of_the_turn_is_noticed"

_RECORDS = {
    "record-no-fence": Mutation(
        "record",
        "if not standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then return refuse({'FENCED'}) end",
        "",
        _RECORD + "test_nothing_is_recorded_by_a_zombie_or_for_a_turn_whose_input_is_gone",
    ),
    "record-no-input": Mutation(
        "record",
        "if not entry(KEYS[3], ARGV[3], ARGV[4]) then return refuse({'DUP'}) end",
        "",
        _RECORD + "test_nothing_is_recorded_by_a_zombie_or_for_a_turn_whose_input_is_gone",
    ),
    "record-no-replies": Mutation("record", "r < tonumber(ARGV[8]) or ", "", _TOLD),
    "record-no-savepoints": Mutation("record", " or n < tonumber(ARGV[9])", "", _TOLD),
    "record-no-version": Mutation(
        "record", "if ARGV[10] ~= '' and (field(KEYS[6], 'v') or '0') ~= ARGV[10] then", "if false then", _TOLD
    ),
    "record-replaces": Mutation(
        "record", "if known then\n", "if false then\n", _RECORD + "test_the_first_value_under_a_name_stays"
    ),
    "record-no-nonce": Mutation(
        "record",
        "nonce == ARGV[7] and {'KEPT'} or",
        "",
        _RECORD + "test_the_same_question_again_is_told_that_its_value_is_kept",
    ),
    "record-among-calls": Mutation(
        "record", "'x:' .. ARGV[5]", "ARGV[5]", _RECORD + "test_no_name_is_taken_for_a_call_or_a_count"
    ),
    "record-expires": Mutation(
        "record",
        "redis.call('PERSIST', journal)",
        "",
        _RECORD + "test_a_record_does_not_expire_with_what_was_left_open",
    ),
}

_LEAVES = _COMMIT + "test_a_nested_turn_leaves_a_savepoint_and_no_state"

_SAVEPOINTS = {
    "nested-leaves-nothing": Mutation(
        "commit", "if ARGV[7] ~= '' then keep_savepoint", "if false then keep_savepoint", _LEAVES
    ),
    "nested-not-the-last": Mutation("commit", ", 'last', name)", ")", _LEAVES),
    "nested-without-place": Mutation(
        "commit", "if name ~= '-' then redis.call('HSET', key, '@' .. name, place) end", "", _LEAVES
    ),
    "nested-not-counted": Mutation(
        "commit",
        "keep_savepoint(KEYS[8], ARGV[8], ARGV[7], parent + 1)",
        "keep_savepoint(KEYS[8], ARGV[8], ARGV[7], parent)",
        _LEAVES,
    ),
    "nested-writes-state": Mutation(
        "commit",
        "elseif mode == 'nested' then\n",
        "elseif mode == 'nested' then\n  redis.call('HSET', KEYS[4], 'v', v, 'd', ARGV[7])\n",
        _COMMIT + "test_a_nested_turn_leaves_a_savepoint_and_no_state",
    ),
    "savepoints-not-told": Mutation("call", "or 'REPLY', r, n,", "or 'REPLY', r, 0,", _LEAVES),
    "failure-drops-savepoint": Mutation(
        "fail", "saved = mode ~= 'plain' and last and field(KEYS[7], last)", "saved = false"
    ),
    "failure-counts-no-version": Mutation("fail", "  v = v + 1\n", ""),
}

_OWNERSHIP = {
    "acquire-living-lease": Mutation(
        "acquire",
        "if owner ~= '' and ends > now then return {0, owner, ends - now} end",
        "",
    ),
    "acquire-same-epoch": Mutation(
        "acquire",
        "epoch, previous = epoch + 1, token or ''",
        "previous = token or ''",
        _OWN + "test_an_expired_lease_is_granted_anew_with_a_new_token",
    ),
    "acquire-no-nonce": Mutation(
        "acquire",
        "local suffix = ':' .. ARGV[1] .. ':' .. ARGV[2]",
        "local suffix = ':'",
        _OWN + "test_a_token_is_never_given_twice_although_the_server_forgets_the_last_grant",
    ),
    "acquire-forgets-grant": Mutation(
        "acquire",
        "if owner ~= ARGV[1] or token ~= epoch .. suffix then",
        "if true then",
        _OWN + "test_the_same_request_repeated_gets_the_same_grant",
    ),
    "acquire-no-holds": Mutation(
        "acquire",
        "for i = 1, #held do grant[4 + i] = held[i] end",
        "",
        _OWN + "test_a_release_leaves_holds_that_the_next_owner_is_told_of",
    ),
    "renew-others": Mutation("renew", _NOT_MINE, "", _OWN + "test_an_expired_lease_is_granted_anew_with_a_new_token"),
    "release-others": Mutation("release", _NOT_MINE, "", _OWN + "test_a_repeated_release_changes_nothing"),
    "gone-others": Mutation(
        "gone",
        "if owner_of(KEYS[1]) ~= ARGV[1] then return 0 end",
        "",
        _OWN + "test_the_lease_of_a_worker_that_has_died_is_ended_and_of_no_other",
    ),
    "release-keeps-token": Mutation(
        "release", ", 'tok', 'released:' .. ARGV[1])", ")", _OWN + "test_a_repeated_release_changes_nothing"
    ),
    "break-hold-early": Mutation(
        "break_hold",
        "if ARGV[3] ~= '1' and tonumber(string.match(held, '^(%d+)|')) > now_ms(ARGV[4]) then return 0 end",
        "",
        _OWN + "test_a_hold_is_broken_when_it_is_over_and_only_by_the_owner",
    ),
    "break-hold-others": Mutation(
        "break_hold",
        "if redis.call('HGET', KEYS[1], 'tok') ~= ARGV[1] then return -1 end",
        "",
        _OWN + "test_a_hold_is_broken_when_it_is_over_and_only_by_the_owner",
    ),
    "claim-held-type": Mutation(
        "claim_type",
        "if beat and tonumber(beat) > now_ms(ARGV[5]) - tonumber(ARGV[4]) then return {0, holder} end",
        "",
        _EVENTS + "test_a_process_bound_type_has_one_holder",
    ),
    "register-not-counted": Mutation(
        "register",
        "if changed == 1 then redis.call('HSET', KEYS[1], 'v', version + 1) end",
        "",
        _EVENTS + "test_the_registry_counts_its_changes",
    ),
}

MUTATIONS: dict[str, Mutation] = {
    **_FENCE,
    **_INPUT,
    **_PROGRESS,
    **_JOINT,
    **_REGISTRY,
    **_JOURNAL,
    **_RECORDS,
    **_SAVEPOINTS,
    **_OWNERSHIP,
}


def sources(name: str) -> dict[str, str]:
    """The scripts that a mutation changes, by name.

    Raises:
        LookupError: the text that it changes is not in the script any more.
    """
    mutation = MUTATIONS[name]
    scripts = SCRIPTS.values() if mutation.script == EVERY else [SCRIPTS[mutation.script]]
    changed = {s.name: s.source.replace(mutation.old, mutation.new) for s in scripts if mutation.old in s.source}
    if not changed:
        raise LookupError(f"mutation {name} does not apply: {mutation.script}.lua has no {mutation.old!r}")
    return changed
