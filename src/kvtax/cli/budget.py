"""stub"""
from kvtax.cli.options import *
from kvtax.cli.options import MODEL_OPTIONS,CARD_OPTIONS,ENGINE_OPTIONS,LOAD_OPTIONS,FORMAT_OPTIONS,EXPLAIN,STRICT,CATALOGUE
def run(values):
    print({k:v for k,v in values.items() if v is not None}); return 0
COMMAND=Command("budget","Where the memory of a GPU goes, and how many requests fit.\n\nFoo.",(Argument("model_argument","MODEL","The model: the same as --model."),),(*MODEL_OPTIONS,*CARD_OPTIONS,*ENGINE_OPTIONS,*LOAD_OPTIONS,CATALOGUE,EXPLAIN,STRICT,*FORMAT_OPTIONS),(("x","kvtax budget"),),run)
