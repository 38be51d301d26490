# `make demo` and `make test` each work on their own on a fresh Debian machine.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NPM_STAMP := tests/forge/node_modules/.installed

# No search index is made beside a demo, a test or a benchmark of something else.
export FUSEFS_INDEX := off

# Where `make install` puts things. DESTDIR stands before all of them, for packages.
PREFIX := /usr/local
DESTDIR :=
SYSTEMD := $(PREFIX)/lib/systemd
SHARE := $(PREFIX)/share
LIBRARY := $(PREFIX)/lib/fusefs
COMPLETIONS := $(SHARE)/bash-completion/completions/fusefs $(SHARE)/zsh/site-functions/_fusefs \
	$(SHARE)/fish/vendor_completions.d/fusefs.fish

.PHONY: help setup demo test torture torture-repositories lint bench bench-search install uninstall clean

help:
	@echo "make demo    show the access rules at work on two mounted sessions"
	@echo "make test    run every test"
	@echo "make torture kill mounts under load for 100 rounds, look what is lost (takes minutes)"
	@echo "make torture-repositories  race commits, kill commits, syncs and merges (takes minutes)"
	@echo "make lint    ruff, mypy --strict, and the import rule of the rooms"
	@echo "make bench   compare with a plain directory, bindfs and plain pyfuse3 (takes long)"
	@echo "make bench-search  how well search finds, and how fast (takes long)"
	@echo "make setup   install what is missing, make $(VENV)"
	@echo "make install    to PREFIX ($(PREFIX)): the command, services of systemd, completions"
	@echo "make uninstall  take all of that away again; instances stay"
	@echo "make clean   remove $(VENV) and everything generated"

# Debian packages are looked at every time (it costs milliseconds); the virtual environment is
# made again only when pyproject.toml changes, the npm packages of tests when their lock does.
setup:
	@.ci/setup.sh system
	@$(MAKE) --no-print-directory $(STAMP) $(NPM_STAMP)

$(STAMP): pyproject.toml .ci/setup.sh
	@.ci/setup.sh python $(VENV)
	@touch $@

$(NPM_STAMP): tests/forge/package-lock.json .ci/setup.sh
	@.ci/setup.sh npm tests/forge
	@touch $@

demo: setup
	@docs/demo.sh $(BIN)/fusefs

test: setup
	@$(BIN)/python -m pytest -n 2 --dist loadfile

# TORTURE holds options, for example `make torture TORTURE="--rounds 500 --seed 7"`, or
# `--repositories`, which kills commits, syncs and restores as well.
torture: setup
	@$(BIN)/python -m tests.mount.torture $(TORTURE)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

# Two sessions race commits, and commands are killed at random moments and at each step: takes
# near ten minutes. `--commits N` and `--rounds N` in TORTURE make it shorter or longer.
torture-repositories: setup
	@$(BIN)/python -m tests.repositories.torture $(TORTURE)

# Run as root: only root can make a plain directory cold. BENCH holds options, for example
# `make bench BENCH="--scale 0.1 --rounds 1"`.
bench: setup
	@.ci/setup.sh bench $(VENV)
	$(BIN)/python -m bench.compare $(BENCH)

# QUALITY and SPEED hold options.
bench-search: setup
	@.ci/setup.sh bench $(VENV)
	$(BIN)/python -m bench.search_quality $(QUALITY)
	$(BIN)/python -m bench.search_speed $(SPEED)

# A virtual environment of its own below PREFIX. What pip writes into it names the folder it is
# built in, which with DESTDIR is not the one it is going to be in.
install:
	@.ci/setup.sh build
	@rm -rf "$(DESTDIR)$(LIBRARY)"
	@.ci/setup.sh install "$(DESTDIR)$(LIBRARY)" "$(LIBRARY)"
	@install -d -m 0755 "$(DESTDIR)$(PREFIX)/bin"
	@ln -sfn "$(LIBRARY)/bin/fusefs" "$(DESTDIR)$(PREFIX)/bin/fusefs"
	@for kind in system user; do \
		case $$kind in system) unit=systemd/fusefs@.service ;; *) unit=systemd/user/fusefs@.service ;; esac; \
		sed 's|/usr/local/bin/|$(PREFIX)/bin/|' "$$unit" | \
			install -D -m 0644 /dev/stdin "$(DESTDIR)$(SYSTEMD)/$$kind/fusefs@.service"; \
	done
	@for file in $(COMPLETIONS); do \
		case $$file in *bash*) shell=bash ;; *zsh*) shell=zsh ;; *) shell=fish ;; esac; \
		"$(DESTDIR)$(LIBRARY)/bin/python" -m fusefs completion $$shell | \
			install -D -m 0644 /dev/stdin "$(DESTDIR)$$file"; \
	done
	@echo "Installed: $(DESTDIR)$(PREFIX)/bin/fusefs. systemctl daemon-reload makes its services known."

uninstall:
	@rm -rf "$(DESTDIR)$(LIBRARY)"
	@rm -f "$(DESTDIR)$(PREFIX)/bin/fusefs" $(addprefix $(DESTDIR),$(COMPLETIONS)) \
		"$(DESTDIR)$(SYSTEMD)/system/fusefs@.service" "$(DESTDIR)$(SYSTEMD)/user/fusefs@.service"

clean:
	rm -rf $(VENV) tests/forge/node_modules build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
