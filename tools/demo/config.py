"""The shape of the demo model, as its config.json says it, and what the model code reads from such a file."""
import json
import os
from types import SimpleNamespace

from tokenizer import EOS, ID, PAD, VOCAB_SIZE

KDA, DSA = "linear_attention", "deepseek_sparse_attention"


def demo_config():
    layer_types = [DSA if i % 4 == 3 else KDA for i in range(8)]
    text = dict(
        model_type="glm5_next_text", dtype="bfloat16", vocab_size=VOCAB_SIZE, bos_token_id=None, pad_token_id=PAD, eos_token_id=EOS,
        hidden_size=192, intermediate_size=512, moe_intermediate_size=80, num_hidden_layers=8, num_nextn_predict_layers=1,
        num_attention_heads=2, num_key_value_heads=2, q_lora_rank=128, kv_lora_rank=512, qk_nope_head_dim=256, v_head_dim=256,
        qk_rope_head_dim=0, qk_head_dim=256, head_dim=0, mla_use_nope=True,
        n_routed_experts=16, n_shared_experts=1, num_experts_per_tok=4, n_group=1, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, scoring_func="sigmoid", topk_method="noaux_tc", moe_router_dtype="float32", moe_layer_freq=1,
        first_k_dense_replace=1, swiglu_limit=10.0, hidden_act="silu",
        index_topk=512, index_n_heads=4, index_head_dim=128, index_kpool=4, index_kpool_compress=True,
        index_kpool_always_select_tail=True, indexer_rope_interleave=True, index_share_for_mtp_iteration=True,
        mhc=True, hc_mult=4, hc_sinkhorn_iters=20, hc_eps=1e-6, rms_norm_eps=1e-5, max_position_embeddings=131072,
        tie_word_embeddings=False, attention_bias=False, attention_dropout=0.0, initializer_range=0.02, use_cache=True,
        layer_types=layer_types, mlp_layer_types=["dense"] + ["sparse"] * 7, indexer_types=["full"] * 8,
        linear_attn_config=dict(num_heads=2, head_dim=128, short_conv_kernel_size=4, gate_lower_bound=-5.0,
                                kda_layers=[i for i, t in enumerate(layer_types) if t == KDA],
                                full_attn_layers=[i for i, t in enumerate(layer_types) if t == DSA]))
    vision = dict(
        model_type="glm5_next_vision", depth=4, hidden_size=128, num_heads=2, intermediate_size=256, out_hidden_size=192,
        projection_intermediate_size=256, patch_size=14, temporal_patch_size=2, spatial_merge_size=2, in_channels=3,
        image_size=112, hidden_act="silu", attention_bias=True, attention_dropout=0.0, rms_norm_eps=1e-5, swiglu_limit=10.0,
        rope_parameters={"rope_type": "axial", "rope_theta": 10000.0})
    return dict(
        architectures=["Glm5NextForConditionalGeneration"], model_type="glm5_next", dtype="bfloat16", tie_word_embeddings=False,
        image_token_id=ID["<|image|>"], video_token_id=ID["<|video|>"], image_start_token_id=ID["<|begin_of_image|>"],
        image_end_token_id=ID["<|end_of_image|>"], video_start_token_id=ID["<|begin_of_video|>"],
        video_end_token_id=ID["<|end_of_video|>"], text_config=text, vision_config=vision)


def processor_config():
    shared = dict(do_rescale=True, patch_expand_factor=1, merge_size=2, patch_size=14, temporal_patch_size=2,
                  image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711], min_image_tokens=16)
    return dict(processor_class="Glm5NextProcessor",
                image_processor=dict(image_processor_type="Glm5NextImageProcessor", max_image_tokens=8000, **shared),
                video_processor=dict(video_processor_type="Glm5NextVideoProcessor", max_image_tokens=240000, fps=2, **shared))


def generation_config():
    return dict(eos_token_id=EOS, pad_token_id=PAD, temperature=1.0, top_p=0.95)


def read(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        return shape(json.load(f))


def shape(config):
    """The numbers that the model code uses, under short names."""
    t, v = config["text_config"], config.get("vision_config")
    linear = t.get("linear_attn_config") or dict(num_heads=t["linear_num_heads"], head_dim=t["linear_head_dim"],
                                                 short_conv_kernel_size=t["linear_conv_kernel_dim"], gate_lower_bound=t["linear_lower_bound"])
    c = SimpleNamespace(
        vocab=t["vocab_size"], hidden=t["hidden_size"], layers=t["num_hidden_layers"], mtp=t.get("num_nextn_predict_layers", 0),
        dsa=[k != KDA for k in t["layer_types"]], sparse=[k == "sparse" for k in t["mlp_layer_types"]],
        dense_width=t["intermediate_size"], expert_width=t["moe_intermediate_size"], experts=t["n_routed_experts"],
        shared=t["n_shared_experts"], per_token=t["num_experts_per_tok"], expert_scale=t["routed_scaling_factor"], limit=t["swiglu_limit"],
        kda_heads=linear["num_heads"], kda_dim=linear["head_dim"], conv=linear["short_conv_kernel_size"], bound=linear["gate_lower_bound"],
        heads=t["num_attention_heads"], q_rank=t["q_lora_rank"], kv_rank=t["kv_lora_rank"], qk=t["qk_nope_head_dim"], v=t["v_head_dim"],
        index_heads=t["index_n_heads"], index_dim=t["index_head_dim"], topk=t["index_topk"], pool=t["index_kpool"],
        hc=t["hc_mult"], sinkhorn=t["hc_sinkhorn_iters"], hc_eps=t["hc_eps"], eps=t["rms_norm_eps"], image_token=config["image_token_id"], vision=None)
    if v:
        c.vision = SimpleNamespace(
            depth=v["depth"], hidden=v["hidden_size"], heads=v["num_heads"], width=v["intermediate_size"], out=v["out_hidden_size"],
            projection=v["projection_intermediate_size"], patch=v["patch_size"], temporal=v["temporal_patch_size"], merge=v["spatial_merge_size"],
            channels=v["in_channels"], eps=v["rms_norm_eps"], limit=v["swiglu_limit"], theta=v["rope_parameters"]["rope_theta"])
    return c
