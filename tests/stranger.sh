#!/usr/bin/env bash
# The first hours of a stranger, in an empty folder, with nothing but the installed package: `tests/stranger.sh BIN FOLDER`
# (BIN: the folder with python, pytest and workbench). Each step is a command that a document or a help names, says what it is
# for, and must have the exit code before it. What a step prints is shown where it is another one.
set -euo pipefail
export PATH="$1:$PATH" NO_COLOR=1 COLUMNS=100
cd "$2"
number=0

step() { # step CODES WHAT COMMAND...: the exit code must be one of CODES, such as 0 or "0 2"
  local codes=$1 what=$2 code=0 begun=$SECONDS
  shift 2
  number=$((number + 1))
  "$@" > said 2>&1 < /dev/null || code=$?
  case " $codes " in
    *" $code "*)
      local expected=0 # 7 where there was too little time for an interval, and only there
      grep -q 'No interval yet: inconclusive' said && expected=7
      if [ "$codes" = "0 7" ] && [ $code != $expected ]; then
        echo "$number. $what: exit code $code, expected $expected by what is said: $*"
        cat said
        exit 1
      fi
      echo "$number. $what ($((SECONDS - begun)) s)"
      ;;
    *)
      echo "$number. $what: exit code $code, expected $codes: $*"
      cat said
      exit 1
      ;;
  esac
}

says() { # says TEXT: the last step printed it
  grep --quiet --fixed-strings -- "$1" said || {
    echo "$number. does not say '$1':"
    cat said
    exit 1
  }
}

lacks() { # lacks TEXT: the last step did not print it
  ! grep --quiet --fixed-strings -- "$1" said || {
    echo "$number. says '$1':"
    cat said
    exit 1
  }
}

commit() {
  git add --all
  git -c user.name=somebody -c user.email=somebody@example.org commit --quiet --message "$1"
}

quickly="--benchmark -p no:cacheprovider --no-causes"

# -- a repository of somebody else's
git init --quiet --initial-branch=main
mkdir pack
cat > pack/text.py << 'PYTHON'
def words(text):
    return sorted(set(text.split()))
PYTHON
touch pack/__init__.py
cat > bench.py << 'PYTHON'
import random

def texts(seed, count=1000):
    draw = random.Random(seed)
    return " ".join(str(draw.randrange(300)) for _ in range(count))

def short_texts(seed):
    return texts(seed, 100)

def number(seed):
    return seed
PYTHON
commit "as it was"
cat > pack/text.py << 'PYTHON'
def words(text):
    found = []
    for word in text.split():
        if word not in found:
            found.append(word)
    return sorted(found)
PYTHON
commit "slower"

# -- what is there
step 0 "the command says what it can do" workbench --help
says "compare-revisions"
step 0 "the package is there" python -c "import llama_workbench; print(llama_workbench.__version__)"
step "0 1" "is this machine fit to measure?" workbench doctor
step 2 "a verb with a typo is told" workbench comprae
step 0 "no run yet" workbench runs
says "pytest --benchmark"

# -- two functions
step 0 "a file to begin with" workbench new subject ways
step 0 "do both agree?" pytest -q test_ways.py
step "0 1" "which is faster? The test asks" pytest $quickly test_ways.py --budget 2
step "0 7" "a function beside itself" pytest $quickly --compare one=bench.py:texts other=bench.py:texts --call bench.py:number --budget 1 --run-dir results/runs/same
step "0 7" "old code against new code" pytest $quickly --compare old=pack.text:words@main~1 new=pack.text:words --call bench.py:texts --budget 6 --run-dir results/runs/first
says "run: results/runs/first (workbench show"
step 4 "an option with a typo is told" pytest $quickly --comparre a b
says "did you mean --compare?"
step 4 "three sides are too many" pytest $quickly --compare a.py:f b.py:f c.py:f --call bench.py:texts
step 1 "a condition fails" pytest $quickly --compare old=pack.text:words@main~1 new=pack.text:words --call bench.py:texts --budget 1 --run-dir results/runs/failing --fail-if not-faster:0
step 6 "a wrong answer" pytest $quickly --compare right=pack.text:words other=bench.py:number --call bench.py:texts --budget 1 --run-dir results/runs/wrong
says "left out: other: "
step 0 "the slowest calls" pytest $quickly --compare old=pack.text:words@main~1 new=pack.text:words --call bench.py:short_texts --budget 8 --statistic p90 --run-dir results/runs/slowest
step 0 "two commands" pytest $quickly --compare "long=cmd:sleep 0.02" "short=cmd:sleep 0.01" --budget 8

# -- the run
step 0 "one screen" workbench show results/runs/first
step 0 "the answer" workbench report results/runs/first
step 0 "judged again" workbench judge results/runs/first
step "0 7" "a little more time" pytest --benchmark --continue results/runs/first --budget 8
step 0 "the runs" workbench runs
says "first"
step 0 "for a service that draws times" workbench export results/runs/first
says "latency"
step 0 "where others read it" workbench publish results/runs/first "file://$PWD/shared/runs/first"
step 0 "and back" workbench report "file://$PWD/shared/runs/first"
step 0 "the same once more" pytest $quickly --compare old=pack.text:words@main~1 new=pack.text:words --call bench.py:texts --budget 12 --run-dir results/runs/second
step 0 "as it was" pytest $quickly --compare old=pack.text:words@main~1 new=pack.text:words@main~1 --call bench.py:texts --budget 12 --run-dir results/runs/before
step 0 "does it say the same?" workbench compare --repeat results/runs/first results/runs/second
lacks "need not agree"
step 0 "two runs are one" workbench combine results/runs/first results/runs/second --into results/runs/both

# -- in CI
step 0 "kept to compare with" workbench baseline save results/runs/first main
step 0 "has anything become twice as slow?" workbench compare main results/runs/second --threshold 100
lacks "machine type"
step 0 "kept as well" workbench baseline save results/runs/before before
step 1 "has anything become slower?" workbench compare before results/runs/second
says "regression"
step 1 "slower in this revision?" workbench compare-revisions main~1 . pack.text:words --call bench.py:texts --budget 10 --json
says '"verdict": "slower"'
step 0 "which commit?" workbench bisect main~1 main pack.text:words --call bench.py:texts --budget 10

# -- a claim
step 0 "a claim to begin with" workbench new claim mine --folder claims
step "0 1" "is it right?" workbench check claims/mine.toml

# -- another environment, and a notebook
step "0 7" "an interpreter of its own" pytest $quickly --compare here=pack.text:words there=pack.text:words --call bench.py:texts --env "there=$(command -v python3)" --budget 5
cat > session.py << 'PYTHON'
import llama_workbench as wb
from pack.text import words

def texts(seed):
    return str(seed) * 50

def sorted_words(text):
    return sorted(dict.fromkeys(text.split()))

if __name__ == "__main__":
    print(wb.compare(words, sorted_words, payload=texts, budget=1))
PYTHON
step 0 "the same from Python" python session.py
says "Is sorted_words faster than"
echo "$number steps"
