"""Style of a page of transcripts, added to that of a report."""

from __future__ import annotations

TRANSCRIPT_STYLE = """
main{max-width:1020px}
.cards{grid-template-columns:repeat(auto-fit,minmax(118px,1fr))}
#filters{position:sticky;top:0;z-index:2;font-size:14px;color:var(--soft);margin:18px 0 14px;
 padding:10px 16px;overflow:visible;display:flex;flex-direction:column;gap:8px}
#filters[hidden],#filters label[hidden]{display:none}
.row{display:flex;flex-wrap:wrap;gap:6px 18px;align-items:center}
.row:last-child{justify-content:space-between}
#filters label{display:flex;align-items:center;gap:7px}
#filters select,#filters input[type=search]{font:inherit;color:var(--ink);background:var(--page);
 border:1px solid var(--rule);border-radius:6px;padding:3px 7px;min-width:0;max-width:150px}
#filters .search{flex:1 1 220px}#filters input[type=search]{flex:1;max-width:none}
#filters input{accent-color:var(--c0)}
#count{color:var(--ink);font-weight:600;font-variant-numeric:tabular-nums}
#agents{display:flex;flex-wrap:wrap;gap:6px;min-width:0}
#agents label{border:1px solid currentColor;border-radius:99px;padding:1px 11px 1px 8px;font-weight:600;
 font-size:13px;cursor:pointer;max-width:100%}
#agents label span{overflow-wrap:anywhere;min-width:0;color:var(--ink)}
#agents input{color:inherit;accent-color:currentColor;margin:0}
#agents label:has(input:not(:checked)){opacity:.55}
.pages{display:flex;gap:8px;align-items:center;color:var(--soft);font-size:14px;
 font-variant-numeric:tabular-nums}
#below{justify-content:center;margin:18px 0 0}
button{font:inherit;color:var(--ink);background:var(--card);border:1px solid var(--rule);border-radius:6px;
 padding:2px 10px;cursor:pointer}
button:hover:enabled{border-color:var(--soft)}button:disabled{opacity:.4;cursor:default}
:is(button,input,select,a):focus-visible{outline:2px solid var(--c0);outline-offset:2px}
.episode{background:var(--card);border:1px solid var(--rule);border-radius:10px;margin:0 0 14px;
 padding:12px 16px 14px}
.episode.current{border-color:var(--c0);box-shadow:0 0 0 1px var(--c0);outline:none}
.top{display:flex;flex-wrap:wrap;gap:4px 12px;align-items:center;font-size:13px;color:var(--soft)}
.top a{color:var(--soft);font-weight:600;text-decoration:none;font-variant-numeric:tabular-nums}
.top a:hover{text-decoration:underline}
.top .gains{margin-left:auto;display:flex;flex-wrap:wrap;gap:2px 14px;justify-content:flex-end}
.gains b{font-variant-numeric:tabular-nums;font-weight:650}
.gains span{overflow-wrap:anywhere}
.pill.small{font-size:12px;padding:0 9px;white-space:normal;
 overflow-wrap:anywhere;border-radius:11px}
.said,.question,.extra{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext;tab-size:4}
.question{margin:8px 0 10px;padding:8px 12px;background:var(--page);border-radius:8px}
.extra{margin:8px 0 0;color:var(--soft);font-size:13px}
.turns{list-style:none;margin:0;padding:0;display:flex;flex-direction:column;gap:10px}
.turn{border-left:3px solid currentColor;padding:0 0 0 12px}
.turn>*{color:var(--ink)}
.turn .who{display:flex;flex-wrap:wrap;gap:2px 10px;align-items:baseline;font-size:13px;color:var(--soft)}
.who bdi,.top bdi{overflow-wrap:anywhere}
.who .name{font-weight:650;overflow-wrap:anywhere}
.channel{border:1px solid var(--rule);border-radius:5px;padding:0 6px;font-size:12px;overflow-wrap:anywhere}
.long{max-height:15em;overflow:hidden;
 -webkit-mask-image:linear-gradient(#000 75%,transparent);mask-image:linear-gradient(#000 75%,transparent)}
.more{margin:4px 0 0;font-size:13px;padding:1px 9px}
.silent{color:var(--soft);font-style:italic}
mark{background:color-mix(in srgb,var(--c3) 45%,transparent);color:inherit;border-radius:2px}
.empty{text-align:center;color:var(--soft);padding:40px 0}
.keys{margin-top:20px}
kbd{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;border:1px solid var(--rule);
 border-radius:4px;padding:0 5px;background:var(--card);margin-left:8px}
@media (max-width:640px){#filters{position:static;padding:10px 12px}.episode{padding:10px 12px 12px}
 .row{gap:8px 12px}#filters .search{flex-basis:100%}
 .top .gains{margin-left:0;width:100%;justify-content:flex-start}.keys{display:none}}
@media print{#filters,.pages,.keys,.more{display:none}.long{max-height:none;mask-image:none}}
"""
