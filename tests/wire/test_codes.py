"""The numbers of the protocol."""

from cometmq.wire.codes import (
    LANGUAGE_CODES,
    LANGUAGE_NAMES,
    POP_CODE_BY_LOW_16_BITS,
    REQUEST_NAMES,
    RESPONSE_NAMES,
    TIER,
    Language,
    Request,
    Response,
)


def constants(codes: type) -> dict[str, int]:
    return {name: value for name, value in vars(codes).items() if name.isupper()}


def test_no_two_names_share_a_number() -> None:
    for codes in (Request, Response, Language):
        numbers = list(constants(codes).values())
        assert sorted(numbers) == sorted(set(numbers)), codes


def test_names_and_numbers_lead_to_each_other() -> None:
    assert {name: code for code, name in REQUEST_NAMES.items()} == constants(Request)
    assert {name: code for code, name in RESPONSE_NAMES.items()} == constants(Response)
    assert LANGUAGE_NAMES[Language.NODE_JS] == "NODE_JS"
    assert LANGUAGE_CODES["GO"] == Language.GO


def test_every_request_has_one_of_four_tiers() -> None:
    assert TIER.keys() == REQUEST_NAMES.keys()
    counts = {tier: list(TIER.values()).count(tier) for tier in "ABC-"}
    assert counts == {"A": 42, "B": 67, "C": 37, "-": 29}


def test_tiers_of_a_few_requests_that_everyone_knows() -> None:
    assert TIER[Request.SEND_MESSAGE_V2] == "A"
    assert TIER[Request.GET_BROKER_CLUSTER_INFO] == "B"
    assert TIER[Request.EXCHANGE_BROKER_HA_INFO] == "C"
    assert TIER[Request.GET_CLIENT_CONFIG] == "-"
    assert TIER[Request.POP_LITE_MESSAGE] == "-"


def test_cut_pop_codes_lead_back_and_collide_with_nothing() -> None:
    assert POP_CODE_BY_LOW_16_BITS[3442] == Request.POP_MESSAGE
    assert POP_CODE_BY_LOW_16_BITS[3543] == Request.BATCH_ACK_MESSAGE
    assert len(POP_CODE_BY_LOW_16_BITS) == 8
    assert not POP_CODE_BY_LOW_16_BITS.keys() & REQUEST_NAMES.keys()
